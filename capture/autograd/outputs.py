"""How the program's outputs are made where gradients are needed: as results of one autograd node, and as
views made after it.

Autograd has to see which outputs are views, and of which tensor. So each call makes a view of an input again,
and also several outputs over one memory: from the input or from one result of the graph, by the program's
views. Views that one op returns together are made by that op, because autograd refuses writes to them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from frameloom.capture.autograd.custom_function import as_made_by
from frameloom.capture.recording.captured_graph import ViewOutput, ViewStep, behind
from frameloom.capture.recording.writes import forget_views, is_by_function
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import ViewOf, view_chain, views_in
from frameloom.errors import Break, first_line

DETACH = torch.ops.aten.detach.default
# writes to its result are not counted as writes to the tensor
DATA: Any = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class Outputs:
    """How each output of the program is made.

    `results`: what the graph returns; `made_of`: per output of the program, the number of the result that it
    is, or the views that make it; `views`: the results that are made by views, too, because other outputs are
    computed from them."""

    def __init__(self, outputs: Sequence[Fake]) -> None:
        self.results: list[Fake] = []
        self.made_of: list[int | ViewOutput] = [0] * len(outputs)
        self.views: dict[int, ViewOutput] = {}
        groups: dict[int, list[int]] = {}
        for n, fake in enumerate(outputs):
            groups.setdefault(id(fake.memory), []).append(n)
        self._outputs = outputs
        for numbers in groups.values():
            self._place(numbers, [outputs[n] for n in numbers])

    def _place(self, numbers: list[int], fakes: list[Fake]) -> None:
        """Decides how the outputs over one memory are made."""
        memory = fakes[0].memory
        wanted = memory.root.requires_grad or any(f.requires_grad for f in fakes)
        alone = len(fakes) == 1 and has_history(fakes[0]) and _above_split(fakes[0]) is None
        if not wanted:
            self._place_without_history(numbers, fakes)
            return
        if any(map(is_by_function, fakes)):
            made_by = fakes[0].by_function
            if not alone or memory.input is not None or made_by is None:
                raise Break("gradient", "an output is a view made by an autograd Function")
            step = ViewStep(as_made_by, made_by, {}, True)
            self.made_of[numbers[0]] = ViewOutput(False, self._result(fakes[0]), (step,))
            return
        if memory.input is None and alone:
            self._make_of(self._source_of(fakes[0]), numbers, fakes)
            return
        source = self._source_of(_common(fakes)) if memory.input is None else memory.root
        if memory.version and (
            memory.input is not None or any(_hides(f, source) or _is_stale_split(f) for f in fakes)
        ):
            raise Break(
                "gradient", "an output shares memory with a tensor that is changed in place"
            )
        if memory.input is None and not has_history(source):
            if not any(f.requires_grad for f in fakes):
                for n, fake in zip(numbers, fakes, strict=True):
                    self.made_of[n] = self._result(fake)
                return
            raise Break("gradient", "an output is a view of a tensor without history")
        self._make_of(source, numbers, fakes)

    def _source_of(self, fake: Fake) -> Fake:
        """Returns what the graph returns for an output, or for the common base of all outputs over its
        memory: the base of that tensor. After a write to the memory, it may return the tensor itself, because
        the graph computes gradients between it and other outputs."""
        base = _base(fake)
        if not has_history(base) or _hides(fake, base) or _is_stale_split(fake):
            return fake
        if fake.memory.version and any(self._comes_from(f, fake) for f in self._outputs):
            return _above_complex(fake)
        return base

    def _comes_from(self, other: Fake, fake: Fake) -> bool:
        """Whether autograd leads from `other`, an output, to `fake`, whose memory was written to. Views made
        before the write do not count: after it, they are views of the base alone."""
        if other.memory is not fake.memory:
            return other.requires_grad and fake.node in self._read_by_others
        version = fake.memory.version
        views = views_in(other, fake)
        is_output = any(f is fake for f in self._outputs)
        return is_output and bool(views) and all(v.version == version for v in views)

    def _place_without_history(self, numbers: list[int], fakes: list[Fake]) -> None:
        """Places outputs without history. A view that is a result of a node would refuse later writes of
        tensors with a history."""
        memory = fakes[0].memory
        views = any(fake.view_of is not None for fake in fakes)
        alone = memory.input is None and len(fakes) == 1
        if alone and views and _is_tracked_view(fakes[0]) and not memory.version:
            self._make_of(_base(fakes[0]), numbers, fakes)
            return
        by_function = any(f.by_function for fake in fakes for f in view_chain(fake))
        if not views or alone or by_function or memory.inference:
            for n, fake in zip(numbers, fakes, strict=True):
                self.made_of[n] = self._result(fake)
            return
        source = _common(fakes) if memory.input is None else memory.root
        if memory.version:
            forget_views(source)
        self._make_of(source, numbers, fakes)

    def _make_of(self, source: Fake, numbers: list[int], fakes: list[Fake]) -> None:
        memory = source.memory
        of_input = memory.input is not None
        number = memory.input if of_input else self._result(source)
        made = {id(source): (of_input, number)}
        early = _early(source, fakes) if of_input else set()
        # Each is made from the last tensor on its chain that is already made.
        for n, fake in sorted(
            zip(numbers, fakes, strict=True), key=lambda p: len(view_chain(p[1]))
        ):
            if fake is source and not of_input:
                self.made_of[n] = number
                continue
            chain = reversed(view_chain(fake))
            base = next(f for f in chain if id(f) in made and (f is source or _leads_to(f, fake)))
            if base is fake and fake is not source:
                self.made_of[n] = made[id(fake)][1]
                continue
            comes_first = base is source and id(fake) in early
            view = ViewOutput(*made[id(base)], tuple(_steps(fake, base)), comes_first)
            if not self._leads_on(fake, source):
                self.made_of[n] = view
                continue
            self.made_of[n] = own = self._result(fake)
            self.views[own], made[id(fake)] = view, (False, own)

    def _leads_on(self, fake: Fake, source: Fake) -> bool:
        """Whether other outputs pass a gradient to this view, and the program may ask for it."""
        if fake is source or fake.node not in self._read_by_others:
            return False
        return has_history(fake) and not _hides(fake, source)

    @cached_property
    def _read_by_others(self) -> set[Node]:
        """Returns the nodes that outputs are computed from."""
        read = [a for f in self._outputs for a in f.node.all_input_nodes]
        return behind(read, lambda n: n.all_input_nodes)

    def _result(self, fake: Fake) -> int:
        self.results.append(fake)
        return len(self.results) - 1


def _early(source: Fake, fakes: Sequence[Fake]) -> set[int]:
    """Returns the identities of those views of an input that come before all its other readers."""
    if source.memory.version:
        return set()
    first = {id(f): view_chain(f, source)[1].node for f in fakes if f is not source}
    views = {*first.values()}
    reader = min((n for n in source.node.users if n not in views), default=None)
    return {f for f, node in first.items() if reader is None or node < reader}


def has_history(fake: Fake) -> bool:
    try:
        return fake.requires_grad and fake.grad_fn is not None
    except RuntimeError as error:  # autograd has lost it by a write
        raise Break("gradient", first_line(error)) from error


def _leads_to(base: Fake, view: Fake) -> bool:
    """Whether the history of a view goes through that of the base. After a write, autograd makes a new
    history, which leads directly to the written tensor."""
    if not view.memory.version or base is view:
        return True
    node = view.grad_fn
    for _ in view_chain(view, base):
        if node is None or node is base.grad_fn:
            break
        node = node.next_functions[0][0]
    return node is base.grad_fn


def recorded_views(outputs: Sequence[Fake]) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the outputs without history that autograd has to know as views: the program made them with
    gradient mode on, from a tensor that requires no gradient. The first set has single views; the second has
    those on whose chain of views one op returned several."""
    alone, multi_output = set(), set()
    for n, fake in enumerate(outputs):
        chain = view_chain(fake, _base(fake))
        views = views_in(fake, chain[0])
        if not any(f.requires_grad or f.by_function for f in chain) and all(
            v.grad and v.counts and v.func is not DETACH for v in views
        ):
            (multi_output if any(v.split_view is not None for v in views) else alone).add(n)
    return frozenset(alone), frozenset(multi_output)


def creation_of(
    outputs: Sequence[Fake], multi_output: Collection[int], remade: Collection[int]
) -> dict[int, str]:
    """Returns the note that autograd needs for outputs that are views, where making them again would not set
    it. `multi_output`: one op returned several of them; `remade`: made with gradient mode on, but made again
    without."""
    views = [n for n, fake in enumerate(outputs) if _is_tracked_view(fake)]
    notes = {n: "DEFAULT" for n in views if n in remade}
    notes |= dict.fromkeys(multi_output, "MULTI_OUTPUT_NODE")
    return notes | {n: "INFERENCE_MODE" for n in views if is_noted_as_inference(outputs[n])}


def is_noted_as_inference(view: Fake) -> bool:
    """Whether autograd notes the view as made in inference mode. A view of such a view counts, too."""
    return any(of.inference for of in views_in(view))


def tracked_views(outputs: Sequence[Fake], remade: Collection[int]) -> frozenset[int]:
    """Returns the outputs without history that autograd knows as views, also of tensors that the program does
    not see. `remade`: those that are made again in the program's mode. A single view counts only if it is
    one of these, or if autograd refuses writes to it: where one op returned several views, or gradient mode
    was off."""
    count = Counter(id(f.memory) for f in outputs)
    known = set()
    for n, f in enumerate(outputs):
        if not _is_tracked_view(f):
            # A result cut by `detach` from another result does not have that one as its base
            # (autograd/detached_results.py).
            if _is_cut(f) and count[id(f.memory)] > 1:
                known.add(n)
            continue
        views = views_in(f, _base(f))
        refuses = any(v.split_view is not None or not v.grad for v in views)
        if n in remade or refuses or count[id(f.memory)] > 1:
            known.add(n)
    return frozenset(known)


def _is_tracked_view(fake: Fake) -> bool:
    view = fake.view_of
    return (
        view is not None
        and view.is_known_view
        and view.func is not DETACH
        and not fake.memory.inference
    )


def _is_cut(fake: Fake) -> bool:
    view = fake.view_of
    return (
        view is not None and (view.func is DETACH or not view.counts) and not fake.memory.inference
    )


def _base(fake: Fake) -> Fake:
    """Returns the tensor that autograd knows it as a view of; itself if it is none."""
    while (view := fake.view_of) is not None and view.is_known_view and view.func is not DETACH:
        fake = view.parent
    return fake


def _common(fakes: Sequence[Fake]) -> Fake:
    """Returns the last tensor that all are views of, without a hidden history between it and them."""
    chains = []
    for fake in fakes:
        visible = itertools.takewhile(lambda f: not _is_hidden(f), view_chain(fake))
        chains.append(list(visible))
    common = chains[0][0]
    for together in zip(*chains, strict=False):
        if any(f is not together[0] for f in together):
            break
        common = together[0]
    above = _above_split(common)
    return _above_complex(common) if above is None else above


def _above_complex(fake: Fake) -> Fake:
    """Returns the tensor that a complex tensor is a view of. A lazily conjugated or negated result of a node
    would be a view, and autograd refuses writes to it. If the real part of a node's result is written,
    autograd assumes that the result starts at the start of its memory."""
    # Gradients between a written tensor and what is computed from it belong to the graph.
    whole = fake.is_complex() and not fake.memory.version
    while (whole or fake.is_conj() or fake.is_neg()) and not _is_hidden(fake):
        if fake.view_of is None or not has_history(fake.view_of.parent):
            break
        fake = fake.view_of.parent
    return fake


def _above_split(fake: Fake) -> Fake | None:
    """Returns the tensor that an op has split last, among those that `fake` is a view of."""
    split = [v for v in views_in(fake) if v.split_view is not None]
    return next((v.parent for v in reversed(split) if has_history(v.parent)), None)


def _is_stale_split(fake: Fake) -> bool:
    """Whether its memory was written to since an op split it: autograd then refuses to use the parts."""
    split = [v for v in views_in(fake) if v.split_view is not None]
    return any(v.version < fake.memory.version for v in split)


def _is_hidden(fake: Fake) -> bool:
    """Whether it is a view without its parent's history."""
    view = fake.view_of
    if view is None or not view.parent.requires_grad:
        return False
    return not view.grad or view.func is DETACH


def _hides(fake: Fake, source: Fake) -> bool:
    return any(map(_is_hidden, view_chain(fake, source)[1:]))


def _steps(fake: Fake, source: Fake) -> list[ViewStep]:
    steps: list[ViewStep] = []
    while fake is not source:
        view = fake.view_of
        if (split_view := view.split_view) is not None:
            of_call = split_view.number, split_view.call
            steps.append(
                ViewStep(split_view.func, split_view.args, {}, view.grad, view.inference, *of_call)
            )
        elif view.func is torch.ops.aten.as_strided.default:
            steps.append(ViewStep(strided, _from(fake, view), {}, view.grad, view.inference))
        else:
            func = view.func if view.counts else DATA
            steps.append(ViewStep(func, view.args, view.kwargs, view.grad, view.inference))
        fake = view.parent
    return steps[::-1]


def _from(fake: Fake, view: ViewOf) -> tuple[Any, ...]:
    """Returns the arguments of `strided`. The Fake of an input has offset 0, wherever in its storage the
    input starts."""
    size, stride = (*view.args, *view.kwargs.values())[:2]
    return size, stride, fake.storage_offset() - view.parent.storage_offset()


def strided(tensor: Any, size: Any, stride: Any, behind: Any) -> Any:
    """Returns a view that starts `behind` elements after the tensor's start."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + behind)
