"""Defers `size != 1` and `size != 0` guards until an output's strides or aliasing depend on them.

The layout of a tensor depends on which of its dimensions have size 1: `y.transpose(0, 1).contiguous()`
copies, unless one has. The code for other sizes computes the same elements for size 1, too. Only the stride
of a dimension of size 1 may differ, and whether a result shares memory with another tensor. Such an
assumption becomes a guard only if a tensor that the program gets, or writes to, may show the difference.
Whether a size is 0 matters only for the strides of a tensor without elements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from frameloom.capture.shapes.plain_layouts import base_of, inputs_are_plain, is_surely_plain
from frameloom.capture.shapes.registry import FRESH
from frameloom.capture.symbolic.chain_probe import Backward, Chain, leading_to
from frameloom.capture.symbolic.layout_probe import (
    RecordedCall,
    can_be_tried,
    has_recorded_layout,
)
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import draws, fakes_in, is_view
from frameloom.capture.tensors.sized import SizedFake, has_contiguous_strides
from frameloom.capture.values.numbers.size import lone_symbol
from frameloom.ir.symbolic.atoms import substitute, unbacked_in
from frameloom.ir.symbolic.call_layouts import AssumedSizes
from frameloom.ir.symbolic.compare import same, surely_positive
from frameloom.ir.symbolic.expr import Int, Size, largest, may_exceed_1
from frameloom.ir.symbolic.shape_env import ShapeEnv

# Their result shares memory with the argument or not, depending on its layout.
ALIASING = frozenset({
    torch.Tensor.contiguous, torch.Tensor.reshape, torch.reshape, torch.Tensor.flatten, torch.flatten, torch.Tensor.ravel, torch.ravel,
    torch.Tensor.reshape_as, torch.Tensor.to, torch.Tensor.unflatten, torch.unflatten,
})  # fmt: skip
aten = torch.ops.aten
COPYING = frozenset({torch.repeat_interleave, torch.Tensor.repeat_interleave})
# They use other ops where sizes are 1, whose derivatives have other layouts.
CONTRACTIONS = frozenset(
    {torch.einsum, torch.tensordot, torch.nn.functional.bilinear, torch.bilinear}
)
# The program sees their answers about layouts at once.
LAYOUT_QUERIES = frozenset({torch.Tensor.stride, torch.Tensor.is_contiguous})


def _is_mostly_fresh(target: Any) -> bool:
    """Whether results are fresh; `cat` has the layout of its operands only if these are channels-last."""
    return target in FRESH or target is aten.cat.default


@dataclass(eq=False)
class Assumption:
    """An assumption made in a call."""

    call: RecordedCall
    sizes: frozenset[Size]
    not_0: frozenset[Size]
    apart: frozenset[Size]
    draws: bool  # whether the call drew random numbers
    alone: bool  # whether it does not change layouts of tensors computed from the results
    sharing: bool = False  # whether it affects which tensors share memory

    @property
    def sources(self) -> tuple[Any, ...]:
        return tuple(f.memory for f in self.call.tensors)

    def is_0_visible(self, outputs: Sequence[Fake]) -> bool:
        seen = {id(f.memory) for f in outputs}
        return any(id(f.memory) in seen and not has_strides_if_empty(f) for f in self.call.results)

    def is_visible(self, outputs: Sequence[Fake]) -> bool:
        call, sources = self.call, self.sources
        seen = {id(f.memory) for f in outputs}
        made = [f.memory for f in call.results]
        shares = call.fn in ALIASING or any(m is s for m in made for s in sources)
        if shares and any(m.version for m in (*sources, *made)):
            self.sharing = True
            return True
        shown = [f for f in call.results if any(_is_view_of(o, f) for o in outputs)]
        if not shown:
            return self.affects_layouts(outputs)
        if call.fn in ALIASING and any(m.input is not None or id(m) in seen for m in sources):
            self.sharing = True
            return True
        if not all(map(_is_plain, shown)):
            return True
        if not self.apart and (any(map(unbacked_in, self.sizes)) or not can_be_tried(call.fn)):
            return False
        own = {f.node for f in outputs if isinstance(f, SizedFake)}
        return any(f.node in own for f in shown)

    def copies_visibly(self, outputs: Sequence[Fake], saved: Collection[Any] = ()) -> bool:
        """Whether the program can tell that the call copied. A view of the argument would show later writes,
        and autograd notices these if the memory is `saved`. Only several sizes together may make the result a
        view (two equal ones, and a third that is 1), and trials of single sizes do not find these cases."""
        made, sources = [f.memory for f in self.call.results], self.sources
        if self.call.fn not in ALIASING or any(m is s for m in made for s in sources):
            return False
        if any(m.version for m in (*sources, *made)):
            return True
        seen = {id(f.memory) for f in outputs}
        shown = any(_is_view_of(o, f) for f in self.call.results for o in outputs)
        return (shown or any(m in saved for m in made)) and any(
            m.input is not None or id(m) in seen for m in sources
        )

    def note(self, for_all: bool = False) -> None:
        """Makes guards for those sizes for which PyTorch's result differs where they are 1; for all sizes if
        `for_all`."""
        for n in self.sizes:
            if for_all or not has_recorded_layout(
                n, self.sizes, self.call, self.sharing, self.draws
            ):
                n.shape_env.assume_not_0(n - 1)
        for n in self.apart:
            n.shape_env.assume_not_0(n)

    def affects_layouts(self, outputs: Sequence[Fake]) -> bool:
        """Whether the layout of an output may depend on that of a result."""
        if self.alone or self.call.fn in COPYING:
            return False
        ends = {f.node for f in outputs if isinstance(f, SizedFake) and self._depends_on_order(f)}
        open_ = (f for f in self.call.results if isinstance(f, SizedFake) and len(f.own_shape) > 1)
        stack = [f.node for f in open_ if not _is_mostly_fresh(base_of(f.node).target)]
        passed = set(stack)
        while stack:
            node = stack.pop()
            if node in ends:
                return True
            for user in node.users:
                if user not in passed and not _is_mostly_fresh(user.target):
                    passed.add(user)
                    stack.append(user)
        return False

    def _depends_on_order(self, fake: SizedFake) -> bool:
        """Whether the order of the dimensions matters where one of the sizes is 1. With one dimension left,
        PyTorch makes a fresh layout."""
        return (
            bool(self.apart)
            or not _is_plain(fake)
            or any(_order_is_visible(fake.shape, n) for n in self.sizes)
        )


def _is_view_of(output: Fake, fake: Fake) -> bool:
    """Whether a result of the program is that tensor, or a view of it; other views of its memory do not
    depend on that tensor's layout."""
    if output.memory is not fake.memory:
        return False
    node: Any = output.node
    while node is not fake.node:
        if not is_view(node):
            # A written tensor has a new node.
            return bool(fake.memory.version)
        node = node.args[0]
    return True


def _sum_changes_layout(gradient: Fake, n: Size) -> bool:
    """Whether it is a sum only over dimensions of size n, whose operand has another layout; autograd leaves
    the sum out if n is 1."""
    node = base_of(gradient.node)
    if node.target is not aten.sum.dim_IntList or node.args[2:3] != (True,):
        return False
    summed, result = node.args[0].meta["val"], node.meta["val"]
    if not all(same(summed.shape[d], n) for d in node.args[1]):
        return False
    strides = [[_where_1(n, s) for s in fake.stride()] for fake in (summed, result)]
    return not all(map(same, *strides))


def _where_1(n: Size, size: Int) -> Int:
    """Returns `size` where n, a single symbol, is 1."""
    shape_env, symbol = n.shape_env, lone_symbol(n)
    return substitute(shape_env, size, lambda s: 1 if s is symbol else shape_env.make({(s,): 1}))


def _order_is_visible(shape: Sequence[Int], n: Size) -> bool:
    """Whether a tensor has elements, and several dimensions of more than one, where n is 1."""
    left = [1 if same(m, n) else _where_1(n, m) for m in shape]
    return not any(same(m, 0) for m in left) and sum(map(may_exceed_1, left)) > 1


def _is_plain(fake: Fake) -> bool:
    """Whether it has the strides of a fresh tensor, as far as sizes are symbolic."""
    return not isinstance(fake, SizedFake) or has_contiguous_strides(fake)


def has_strides_if_empty(fake: Fake) -> bool:
    """Whether its strides are those of a fresh tensor also if it has no elements."""
    if not isinstance(fake, SizedFake):
        return True
    step: Int = 1
    for n, stride in zip(reversed(fake.shape), reversed(fake.stride()), strict=True):
        if not same(step, stride):
            return False
        step = step * largest(n, 1)
    return True


def _is_fresh(result: Fake) -> bool:
    """Whether a call's result has a fresh, contiguous layout, whichever sizes are 1 or 0."""
    return has_strides_if_empty(result) and base_of(result.node).target in FRESH


def _has_certain_layout(gradient: Fake) -> bool:
    """Whether its layout does not depend on sizes of 1."""
    known = not any(isinstance(n, Size) for n in (*gradient.shape, *gradient.stride()))
    return known and (len(gradient.shape) < 2 or base_of(gradient.node).target in FRESH)


def _is_proven_plain(gradient: Fake, proven: set[torch.fx.Node]) -> bool:
    return all(map(surely_positive, gradient.shape)) and is_surely_plain(gradient.node, proven)


def _draws_behind(last: torch.fx.Node) -> bool:
    """Whether a node after `last` draws random numbers. It looks at nodes and not at results, because a
    written tensor has a new node at once."""
    node, end = last.next, last.graph._root
    while node is not end and not draws(node):
        node = node.next
    return node is not end


class LayoutAssumptions:
    """The layout assumptions of one recording."""

    def __init__(self, shape_env: ShapeEnv, graph: torch.fx.Graph) -> None:
        self._shape_env = shape_env
        self._graph = graph
        self._assumptions: list[Assumption] = []
        self._calls: list[RecordedCall] = []
        self._compared: list[Fake] = []

    def begin(self) -> None:
        self._shape_env.assumed_sizes.clear()

    def mark(self) -> tuple[int, int]:
        """Returns a mark for `take_back`."""
        return len(self._assumptions), len(self._calls)

    def take_back(self, mark: tuple[int, int]) -> None:
        """Drops the calls that were recorded since the mark."""
        n_assumptions, n_calls = mark
        del self._assumptions[n_assumptions:]
        del self._calls[n_calls:]

    def called(
        self,
        last: torch.fx.Node,
        fn: Callable[..., Any],
        given: tuple[Any, Any],
        result: Any,
    ) -> None:
        """Notes that `fn` was recorded, after the node `last`. A result that is not a tensor (of
        `x.is_contiguous()`) is seen by the program at once."""
        assumed = self._shape_env.assumed_sizes
        results, not_1, not_0 = (
            (*fakes_in((result,)),),
            frozenset(assumed.not_1),
            frozenset(assumed.not_0),
        )
        call = RecordedCall(
            fn,
            given,
            (*fakes_in(given),),
            results,
            torch.is_grad_enabled(),
            not_1 | assumed.alone,
            not_0,
        )
        self._calls.append(call)
        if not results and result is not None:
            self._shape_env.assume_sizes()
        elif assumed:
            nothing: frozenset[Any] = frozenset()
            drawn = _draws_behind(last)
            self._assumptions += [
                Assumption(call, sizes, not_0_too, apart, drawn, alone)
                for sizes, not_0_too, apart, alone in (
                    (not_1, not_0, nothing, False),
                    (frozenset(assumed.alone - not_1), nothing, nothing, True),
                    (nothing, nothing, frozenset(assumed.apart), False),
                )
                if sizes or not_0_too or apart
            ]
        elif fn in ALIASING:
            # PyTorch caches such properties of a tensor: the answer may rest on an assumption of an earlier
            # call.
            sources = tuple(f.memory for f in call.tensors)
            before = (
                a for a in self._assumptions if a.call.fn in ALIASING and a.sources == sources
            )
            if (known := next(before, None)) is not None:
                self._assumptions.append(replace(known, call=call))

    def answer(self, fn: Callable[..., Any], *given: Any) -> Any:
        """Returns an answer of `fn` about layouts that decides how the capture continues; its assumptions
        become guards."""
        self.begin()
        result = fn(*given)
        self._shape_env.assume_sizes()
        return result

    def compared(self, *fakes: Fake) -> None:
        """Notes that the program has compared these tensors by identity."""
        self._compared += fakes

    def make_guards(self, outputs: Sequence[Fake]) -> None:
        """Makes guards of visible assumptions at the end of the recording."""
        asked = (f for call in self._calls if call.fn in LAYOUT_QUERIES for f in call.tensors)
        outputs = [*{id(f): f for f in (*outputs, *asked, *self._compared)}.values()]
        for assumption in self._assumptions:
            if assumption.copies_visibly(outputs):
                assumption.note(for_all=True)
        for assumption in self._untried(self._guard_by_trials(outputs, None)):
            if (assumption.sizes or assumption.apart) and assumption.is_visible(outputs):
                assumption.note()
            if assumption.not_0 and assumption.is_0_visible(outputs):
                for n in assumption.not_0:
                    self._shape_env.assume_not_0(n)

    def release(self) -> None:
        self._assumptions.clear()
        self._calls.clear()
        self._compared.clear()

    def _guard_by_trials(self, outputs: Sequence[Fake], back: Backward | None) -> bool:
        """Whether trials of the calls that lead to these outputs could decide which sizes are visible; makes
        guards for those."""
        if back is None:
            calls = leading_to(self._calls, outputs, _is_fresh)
            assumed_sizes = AssumedSizes()
        else:
            calls = leading_to(self._calls, back.roots, lambda result: False)
            assumed_sizes = self._shape_env.assumed_sizes
        not_1 = (
            assumed_sizes.not_1 | assumed_sizes.alone | {n for call in calls for n in call.not_1}
        )
        not_0 = assumed_sizes.not_0 | {n for call in calls for n in call.not_0}
        if self._shape_env.has_unbacked:
            unbacked = self._unbacked_sizes(calls, outputs)
            not_1, not_0 = not_1 | unbacked, not_0 | unbacked
        if not (not_1 or not_0):
            return True
        chain = Chain(self._shape_env, calls, outputs, back)
        # Other threads may draw meanwhile, so the state is restored only if the graph draws.
        draws_too = any(map(draws, self._graph.nodes))
        state = torch.get_rng_state() if draws_too else None
        try:
            if not chain.is_as_recorded():
                return False
            cases = [(n, k) for k, sizes in ((1, not_1), (0, not_0)) for n in sizes]
            cases.sort(key=repr)
            # Single sizes come first, so that the effect of one size is not attributed to another one that is
            # 1, too.
            tried = [chain.matches_recording(n, number, alone=True) for n, number in cases]
            self._assume_not(c for c, matches in zip(cases, tried, strict=True) if matches is False)
            for (n, number), matches in zip(cases, tried, strict=True):
                if matches is not False:
                    together = chain.matches_recording(n, number, alone=False)
                    if together is False or (matches is None and together is None):
                        self._assume_not([(n, number)])
        finally:
            if state is not None:
                torch.set_rng_state(state)
        return True

    def _unbacked_sizes(self, calls: Sequence[RecordedCall], outputs: Sequence[Fake]) -> set[Size]:
        """Returns the unbacked sizes for which layouts may depend on whether they are 0 or 1."""
        made = [*outputs, *(f for call in calls for f in (*call.tensors, *call.results))]
        shapes = [f.shape for f in made if f.dim() > 1]
        symbols = {s for shape in shapes for n in shape for s in unbacked_in(n)}
        return {self._shape_env.make({(s,): 1}) for s in symbols}

    def _untried(self, tried: bool) -> list[Assumption]:
        """Returns the assumptions that trials do not cover."""
        return [a for a in self._assumptions if a.apart or not tried]

    def _assume_not(self, cases: Iterable[tuple[Size, int]]) -> None:
        for n, number in cases:
            self._shape_env.assume_not_0(n - number)

    def make_gradient_guards(
        self,
        roots: Sequence[Fake],
        seeds: Sequence[Fake],
        leaves: Sequence[Fake],
        all_gradients: Sequence[Fake | None],
        saved: Collection[Any],
    ) -> None:
        """Makes guards where layouts of gradients depend on sizes. Gradients of inputs matter because
        autograd copies the gradients of leaves into a layout of its own. `saved`: the memories that autograd
        saves."""
        for assumption in self._assumptions:
            if assumption.copies_visibly(roots, saved):
                assumption.note(for_all=True)
        # assumptions of the derivatives themselves
        own = tuple(self._shape_env.assumed_sizes.not_1)
        pairs = zip(leaves, all_gradients, strict=True)
        doubted = [(x, g) for x, g in pairs if g is not None and not _has_certain_layout(g)]
        takes_others = any(call.fn in CONTRACTIONS for call in self._calls)
        if doubted and not takes_others and inputs_are_plain(self._graph):
            proven: set[torch.fx.Node] = set()
            doubted = [(x, g) for x, g in doubted if not _is_proven_plain(g, proven)]
        if not doubted:
            return
        tried = self._guard_by_trials((), Backward(roots, seeds, *zip(*doubted, strict=True)))
        gradients = [g for g in all_gradients if g is not None]
        for assumption in self._untried(tried):
            if assumption.affects_layouts(gradients):
                assumption.note()
        for n in () if tried else own:
            if any(_sum_changes_layout(gradient, n) for gradient in gradients):
                n.shape_env.assume_not_0(n - 1)
