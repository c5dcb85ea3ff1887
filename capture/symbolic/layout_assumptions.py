"""Assumptions that a size is not 1, or not 0, which only matter where the program can see them.

How a tensor lies in memory depends on which of its dimensions have size 1: `y.transpose(0, 1).contiguous()` copies, unless one is.  The code
for other sizes computes the same elements for size 1, too.  What may differ is the stride of a dimension of size 1, and whether a result shares
memory with something.  Such an assumption becomes a condition only if a tensor that the program gets, or writes to, may show the difference.
That a size is not 0 matters to the strides of a tensor without elements alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from frameloom.capture.autograd.partition import is_view
from frameloom.capture.shapes.plain_layouts import FRESH, base_of, inputs_are_plain, is_surely_plain
from frameloom.capture.symbolic.chain_probe import Backward, Called, Chain, leading_to
from frameloom.capture.symbolic.layout_probe import can_be_tried, lies_alike
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import draws
from frameloom.capture.tensors.sized import SizedFake, lies_plainly
from frameloom.capture.values.numbers.size import lone_symbol
from frameloom.ir.symbolic.atoms import substitute, unbacked_in
from frameloom.ir.symbolic.call_layouts import AssumedSizes
from frameloom.ir.symbolic.compare import same, surely_positive
from frameloom.ir.symbolic.expr import Int, Size, largest, may_exceed_1
from frameloom.ir.symbolic.shape_env import ShapeEnv

# Their result shares memory with the argument or not, as its layout allows.
ALIASING = frozenset({
    torch.Tensor.contiguous, torch.Tensor.reshape, torch.reshape, torch.Tensor.flatten, torch.flatten, torch.Tensor.ravel, torch.ravel,
    torch.Tensor.reshape_as, torch.Tensor.to, torch.Tensor.unflatten, torch.unflatten,
})  # fmt: skip
aten = torch.ops.aten
# `cat` lies as its operands do only where these are channels-last.
MOSTLY_FRESH = FRESH | {aten.cat.default}
COPYING = frozenset({torch.repeat_interleave, torch.Tensor.repeat_interleave})
# They take other ops where sizes are 1, whose derivatives lie otherwise.
CONTRACTIONS = frozenset(
    {torch.einsum, torch.tensordot, torch.nn.functional.bilinear, torch.bilinear}
)
# What they say of a tensor's layout the program sees at once.
TELL_LAYOUTS = frozenset({torch.Tensor.stride, torch.Tensor.is_contiguous})


@dataclass(eq=False)
class Assumption:
    """Made in a call of `fn`, from tensors over `sources`."""

    sizes: frozenset[Size]
    not_0: frozenset[Size]
    fn: Callable[..., Any]
    given: tuple[Any, Any]  # the arguments
    sources: tuple[Any, ...]
    results: tuple[Fake, ...]
    draws: bool  # whether the call drew random numbers
    alone: bool = False  # whether layouts of what is computed from the results are no others
    sharing: bool = False  # whether it shows what shares memory with what
    apart: frozenset[Size] = frozenset()

    def is_0_visible(self, outputs: Sequence[Fake]) -> bool:
        seen = {id(f.memory) for f in outputs}
        return any(id(f.memory) in seen and not has_strides_if_empty(f) for f in self.results)

    def is_visible(self, outputs: Sequence[Fake]) -> bool:
        seen = {id(f.memory) for f in outputs}
        made = [f.memory for f in self.results]
        shares = self.fn in ALIASING or any(m is s for m in made for s in self.sources)
        if shares and any(m.version for m in (*self.sources, *made)):
            self.sharing = True
            return True
        shown = [f for f in self.results if any(_leads_to(o, f) for o in outputs)]
        if not shown:
            return self.shapes(outputs)
        if self.fn in ALIASING and any(m.input is not None or id(m) in seen for m in self.sources):
            self.sharing = True
            return True
        if not all(map(_is_plain, shown)):
            return True
        if not self.apart and (any(map(unbacked_in, self.sizes)) or not can_be_tried(self.fn)):
            return False
        own = {f.node for f in outputs if isinstance(f, SizedFake)}
        return any(f.node in own for f in shown)

    def copies_visibly(self, outputs: Sequence[Fake], saved: Collection[Any] = ()) -> bool:
        """Whether the program can tell that the call copied: a view of what it was given would show what is written there, and autograd
        notices that where it is `saved`.  Sizes that come together may make it one (two that are equal, beside a third that is 1): of
        these, trials of single ones say nothing."""
        if self.fn not in ALIASING or any(
            f.memory is m for f in self.results for m in self.sources
        ):
            return False
        if any(m.version for m in (*self.sources, *(f.memory for f in self.results))):
            return True
        seen = {id(f.memory) for f in outputs}
        shown = any(_leads_to(o, f) for f in self.results for o in outputs)
        return (shown or any(f.memory in saved for f in self.results)) and any(
            m.input is not None or id(m) in seen for m in self.sources
        )

    def note(self, for_all: bool = False) -> None:
        """It becomes a condition, for those sizes for which PyTorch gives something else where they are 1, or `for_all`."""
        for n in self.sizes:
            call = self.fn, *self.given
            if for_all or not lies_alike(
                n, self.sizes, *call, self.results, self.sharing, self.draws
            ):
                n.shape_env.assume_not_0(n - 1)
        for n in self.apart:
            n.shape_env.assume_not_0(n)

    def shapes(self, outputs: Sequence[Fake]) -> bool:
        """Whether the layout of an output may follow from that of a result."""
        if self.alone or self.fn in COPYING:
            return False
        ends = {f.node for f in outputs if isinstance(f, SizedFake) and self._counts_in(f)}
        open_ = (f for f in self.results if isinstance(f, SizedFake) and len(f.own_shape) > 1)
        stack = [f.node for f in open_ if base_of(f.node).target not in MOSTLY_FRESH]
        passed = set(stack)
        while stack:
            node = stack.pop()
            if node in ends:
                return True
            for user in node.users:
                if user not in passed and user.target not in MOSTLY_FRESH:
                    passed.add(user)
                    stack.append(user)
        return False

    def _counts_in(self, fake: SizedFake) -> bool:
        """Whether the order of the dimensions says something where one of the sizes is 1.  With one dimension left, PyTorch lays out anew."""
        return (
            bool(self.apart)
            or not _is_plain(fake)
            or any(_order_counts(fake.shape, n) for n in self.sizes)
        )


def _leads_to(output: Fake, fake: Fake) -> bool:
    """Whether a result of the program is that tensor, or a view of it; other views of its memory are what they are, wherever that tensor lies."""
    if output.memory is not fake.memory:
        return False
    node: Any = output.node
    while node is not fake.node:
        if not is_view(node):
            # What was written is a new node.
            return bool(fake.memory.version)
        node = node.args[0]
    return True


def _lies_unsummed(gradient: Fake, n: Size) -> bool:
    """Whether it is a sum over nothing but a dimension of size n, where autograd sums nothing if that is 1, and whose operand lies otherwise."""
    node = base_of(gradient.node)
    if node.target is not aten.sum.dim_IntList or node.args[2:3] != (True,):
        return False
    summed, found = node.args[0].meta["val"], node.meta["val"]
    if not all(same(summed.shape[d], n) for d in node.args[1]):
        return False
    strides = [[_where_1(n, s) for s in fake.stride()] for fake in (summed, found)]
    return not all(map(same, *strides))


def _where_1(n: Size, size: Int) -> Int:
    """A size where n, which is a symbol alone, is 1."""
    shape_env, symbol = n.shape_env, lone_symbol(n)
    return substitute(shape_env, size, lambda s: 1 if s is symbol else shape_env.make({(s,): 1}))


def _order_counts(shape: Sequence[Int], n: Size) -> bool:
    """Whether a tensor has elements, and several dimensions of more than one, where n is 1."""
    left = [1 if same(m, n) else _where_1(n, m) for m in shape]
    return not any(same(m, 0) for m in left) and sum(map(may_exceed_1, left)) > 1


def _is_plain(fake: Fake) -> bool:
    """Whether it has the strides of a fresh tensor, as far as sizes vary."""
    return not isinstance(fake, SizedFake) or lies_plainly(fake)


def has_strides_if_empty(fake: Fake) -> bool:
    """Whether its strides are those of a fresh tensor without elements, too."""
    if not isinstance(fake, SizedFake):
        return True
    step: Int = 1
    for n, stride in zip(reversed(fake.shape), reversed(fake.stride()), strict=True):
        if not same(step, stride):
            return False
        step = step * largest(n, 1)
    return True


def _is_fresh(result: Fake) -> bool:
    """Whether a call's result is laid out anew, and plainly, whichever sizes are 1 or 0."""
    return has_strides_if_empty(result) and base_of(result.node).target in FRESH


def _lies_surely(gradient: Fake) -> bool:
    """Whether sizes of 1 make no difference to how it lies."""
    known = not any(isinstance(n, Size) for n in (*gradient.shape, *gradient.stride()))
    return known and (len(gradient.shape) < 2 or base_of(gradient.node).target in FRESH)


def _is_proven_plain(gradient: Fake, proven: set[torch.fx.Node]) -> bool:
    return all(map(surely_positive, gradient.shape)) and is_surely_plain(gradient.node, proven)


def _draws_behind(last: torch.fx.Node) -> bool:
    """Whether what is recorded behind that node draws random numbers.  What is written is a new node at once, so that results tell nothing."""
    node, end = last.next, last.graph._root
    while node is not end and not draws(node):
        node = node.next
    return node is not end


class LayoutAssumptions:
    """Those of one recording."""

    def __init__(self, shape_env: ShapeEnv, graph: torch.fx.Graph) -> None:
        self._shape_env = shape_env
        self._graph = graph
        self._found: list[Assumption] = []
        self._calls: list[Called] = []
        self._compared: list[Fake] = []

    def begin(self) -> None:
        self._shape_env.assumed_sizes.clear()

    def mark(self) -> tuple[int, int]:
        """For `take_back`."""
        return len(self._found), len(self._calls)

    def take_back(self, mark: tuple[int, int]) -> None:
        """Calls that were made since are no longer recorded."""
        found, calls = mark
        del self._found[found:]
        del self._calls[calls:]

    def end(
        self,
        last: torch.fx.Node,
        fn: Callable[..., Any],
        given: tuple[Any, Any],
        arguments: Sequence[Fake],
        results: Sequence[Fake],
        is_answer: bool = False,
    ) -> None:
        """`fn` has been recorded, behind the node `last`.  `is_answer`: what it gave is no tensor, so that the program sees it at once (`x.is_contiguous()`)."""
        assumed_sizes = self._shape_env.assumed_sizes
        sizes, not_0 = frozenset(assumed_sizes.not_1), frozenset(assumed_sizes.not_0)
        alone = frozenset(assumed_sizes.alone - sizes)
        if is_answer:
            self._shape_env.assume_sizes()
            return
        if not assumed_sizes:
            return
        sources = tuple(f.memory for f in arguments)
        made, drawn = tuple(results), _draws_behind(last)
        if sizes or not_0:
            self._found.append(Assumption(sizes, not_0, fn, given, sources, made, drawn))
        nothing: frozenset[Any] = frozenset()
        if alone:
            self._found.append(Assumption(alone, nothing, fn, given, sources, made, drawn, True))
        if assumed_sizes.apart:
            apart = frozenset(assumed_sizes.apart)
            self._found.append(
                Assumption(nothing, nothing, fn, given, sources, made, drawn, apart=apart)
            )

    def answer(self, fn: Callable[..., Any], *given: Any) -> Any:
        """What `fn` tells of layouts, which decides what comes next."""
        self.begin()
        told = fn(*given)
        self._shape_env.assume_sizes()
        return told

    def compared(self, *fakes: Fake) -> None:
        """The program has asked whether they are one object."""
        self._compared += fakes

    def called(
        self, fn: Callable[..., Any], given: tuple[Any, Any], tensors: Sequence[Fake], results: Sequence[Fake]
    ) -> None:  # fmt: skip
        """A call has been recorded, `fn` of the arguments `given`, of which `tensors` are."""
        assumed_sizes, grad = self._shape_env.assumed_sizes, torch.is_grad_enabled()
        not_1, not_0 = (
            frozenset(assumed_sizes.not_1 | assumed_sizes.alone),
            frozenset(assumed_sizes.not_0),
        )
        self._calls.append(Called(fn, given, tuple(tensors), tuple(results), grad, not_1, not_0))
        if fn in ALIASING and not assumed_sizes:
            # PyTorch remembers what it has asked of a tensor: the answer may rest on what an earlier call took sizes for.
            sources = tuple(f.memory for f in tensors)
            before = (a for a in self._found if a.fn in ALIASING and a.sources == sources)
            if (known := next(before, None)) is not None:
                self._found.append(replace(known, fn=fn, given=given, results=tuple(results)))

    def settle(self, outputs: Sequence[Fake]) -> None:
        """The recording is over."""
        asked = (f for call in self._calls if call.fn in TELL_LAYOUTS for f in call.tensors)
        outputs = [*{id(f): f for f in (*outputs, *asked, *self._compared)}.values()]
        for assumption in self._found:
            if assumption.copies_visibly(outputs):
                assumption.note(for_all=True)
        for assumption in self._left(self._is_tried(outputs, None)):
            if (assumption.sizes or assumption.apart) and assumption.is_visible(outputs):
                assumption.note()
            if assumption.not_0 and assumption.is_0_visible(outputs):
                for n in assumption.not_0:
                    self._shape_env.assume_not_0(n)

    def release(self) -> None:
        self._found.clear()
        self._calls.clear()
        self._compared.clear()

    def _is_tried(self, outputs: Sequence[Fake], back: Backward | None) -> bool:
        """Whether trials of the calls that lead to these have said which sizes show."""
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
        # Other threads may draw meanwhile: only where something is drawn.
        draws_too = any(map(draws, self._graph.nodes))
        state = torch.get_rng_state() if draws_too else None
        try:
            if not chain.is_as_recorded():
                return False
            cases = [(n, k) for k, sizes in ((1, not_1), (0, not_0)) for n in sizes]
            cases.sort(key=repr)
            # One size after the other first: what one of them makes is not due to another that is 1, too.
            tried = [chain.is_alike(n, number, alone=True) for n, number in cases]
            self._assume_not(c for c, alike in zip(cases, tried, strict=True) if alike is False)
            for (n, number), alike in zip(cases, tried, strict=True):
                if alike is not False:
                    together = chain.is_alike(n, number, alone=False)
                    if together is False or (alike is None and together is None):
                        self._assume_not([(n, number)])
        finally:
            if state is not None:
                torch.set_rng_state(state)
        return True

    def _unbacked_sizes(self, calls: Sequence[Called], outputs: Sequence[Fake]) -> set[Size]:
        """Those that data decides, of which layouts may depend on whether they are 0 or 1."""
        made = [*outputs, *(f for call in calls for f in (*call.tensors, *call.results))]
        shapes = [f.shape for f in made if f.dim() > 1]
        symbols = {s for shape in shapes for n in shape for s in unbacked_in(n)}
        return {self._shape_env.make({(s,): 1}) for s in symbols}

    def _left(self, tried: bool) -> list[Assumption]:
        """Those of which trials say nothing."""
        return [a for a in self._found if a.apart or not tried]

    def _assume_not(self, cases: Iterable[tuple[Size, int]]) -> None:
        for n, number in cases:
            self._shape_env.assume_not_0(n - number)

    def settle_gradients(
        self,
        roots: Sequence[Fake],
        seeds: Sequence[Fake],
        leaves: Sequence[Fake],
        found: Sequence[Fake | None],
        saved: Collection[Any],
    ) -> None:
        """Those of inputs are recorded, too: tensors of which autograd lays out anew what leaves get.  `saved`: the memories that it saves."""
        for assumption in self._found:
            if assumption.copies_visibly(roots, saved):
                assumption.note(for_all=True)
        own = tuple(self._shape_env.assumed_sizes.not_1)  # of the derivatives themselves
        pairs = zip(leaves, found, strict=True)
        doubted = [(x, g) for x, g in pairs if g is not None and not _lies_surely(g)]
        takes_others = any(call.fn in CONTRACTIONS for call in self._calls)
        if doubted and not takes_others and inputs_are_plain(self._graph):
            proven: set[torch.fx.Node] = set()
            doubted = [(x, g) for x, g in doubted if not _is_proven_plain(g, proven)]
        if not doubted:
            return
        tried = self._is_tried((), Backward(roots, seeds, *zip(*doubted, strict=True)))
        gradients = [g for g in found if g is not None]
        for assumption in self._left(tried):
            if assumption.shapes(gradients):
                assumption.note()
        for n in () if tried else own:
            if any(_lies_unsummed(gradient, n) for gradient in gradients):
                n.shape_env.assume_not_0(n - 1)
