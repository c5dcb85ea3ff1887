"""What the program's outputs are made of where gradients are needed: results of one autograd node, and views made behind it.

Autograd has to see which outputs are views, and of what: a view of an input, and several outputs over one memory, are made anew
at each call, from the input or from one result of the graph, by the views that the program made.  Those that one op gives together are made
by that op: autograd refuses writes to them.
"""

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
from frameloom.capture.tensors.functionalize import ViewOf
from frameloom.errors import Break, first_line

DETACH = torch.ops.aten.detach.default
DATA: Any = torch.Tensor.data.__get__  # writes to it are not counted as writes to the tensor


class Outputs:
    """`results`: what the graph returns; `made_of`: for each output of the program, the number of the result that it is, or the
    views that it is made by; `views`: the results that are made by views, too, because others are computed from them."""

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
        """The outputs over one memory."""
        memory = fakes[0].memory
        wanted = memory.root.requires_grad or any(f.requires_grad for f in fakes)
        alone = len(fakes) == 1 and has_history(fakes[0]) and _above_pieces(fakes[0]) is None
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
            memory.input is not None or any(_hides(f, source) or _is_spoilt(f) for f in fakes)
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
        """What the graph returns for an output, or for what all outputs over its memory are views of: what that is itself a view of.  Not where
        something was written there: gradients between it and other outputs are the graph's."""
        base = _base(fake)
        if not has_history(base) or _hides(fake, base) or _is_spoilt(fake):
            return fake
        if fake.memory.version and any(self._comes_from(f, fake) for f in self._outputs):
            return _above_complex(fake)
        return base

    def _comes_from(self, other: Fake, fake: Fake) -> bool:
        """Whether autograd leads from `other`, an output, to `fake`, over whose memory something was written: not from views made before that, which
        are views of the base alone then."""
        if other.memory is not fake.memory:
            return other.requires_grad and fake.node in self._read_by_others
        version = fake.memory.version
        views = [f.view_of for f in _line(other, fake)[1:]]
        is_output = any(f is fake for f in self._outputs)
        return is_output and bool(views) and all(v.version == version for v in views)

    def _place_without_history(self, numbers: list[int], fakes: list[Fake]) -> None:
        """Views that a node makes refuse what is written to them later, if that has a history."""
        memory = fakes[0].memory
        views = [f.view_of for fake in fakes for f in _line(fake) if f.view_of is not None]
        alone = memory.input is None and len(fakes) == 1
        if alone and views and _is_told(fakes[0]) and not memory.version:
            self._make_of(_base(fakes[0]), numbers, fakes)
            return
        by_function = any(f.by_function for fake in fakes for f in _line(fake))
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
        # Each from the last one that it is a view of, and others are computed from.
        for n, fake in sorted(zip(numbers, fakes, strict=True), key=lambda p: len(_line(p[1]))):
            if fake is source and not of_input:
                self.made_of[n] = number
                continue
            line = reversed(_line(fake))
            base = next(f for f in line if id(f) in made and (f is source or _leads_to(f, fake)))
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
        """Whether a gradient comes to this view from other outputs, where the program may ask for it."""
        if fake is source or fake.node not in self._read_by_others:
            return False
        return has_history(fake) and not _hides(fake, source)

    @cached_property
    def _read_by_others(self) -> set[Node]:
        """What outputs are computed from."""
        read = [a for f in self._outputs for a in f.node.all_input_nodes]
        return behind(read, lambda n: n.all_input_nodes)

    def _result(self, fake: Fake) -> int:
        self.results.append(fake)
        return len(self.results) - 1


def _early(source: Fake, fakes: Sequence[Fake]) -> set[int]:
    """The identities of those views of an input that come before all that reads it but such views."""
    if source.memory.version:
        return set()
    first = {id(f): _line(f, source)[1].node for f in fakes if f is not source}
    views = {*first.values()}
    reader = min((n for n in source.node.users if n not in views), default=None)
    return {f for f, node in first.items() if reader is None or node < reader}


def has_history(fake: Fake) -> bool:
    try:
        return fake.requires_grad and fake.grad_fn is not None
    except RuntimeError as error:  # autograd has lost it by a write
        raise Break("gradient", first_line(error)) from error


def _leads_to(base: Fake, view: Fake) -> bool:
    """Whether the history of a view goes through that tensor's.  The one that autograd makes anew behind a write goes to what was written to at once."""
    if not view.memory.version or base is view:
        return True
    node = view.grad_fn
    for _ in _line(view, base):
        if node is None or node is base.grad_fn:
            break
        node = node.next_functions[0][0]
    return node is base.grad_fn


def meet_histories(outputs: Sequence[Fake]) -> None:
    """Lets autograd make the histories of views anew whose base was written to, while their ops are recorded."""
    for fake in outputs:
        for f in _line(fake):
            has_history(f)


def recorded_views(outputs: Sequence[Fake]) -> tuple[frozenset[int], frozenset[int]]:
    """Those of `outputs` that autograd, for which they have no history yet, is to know as views: the program made them with gradient mode on, of a
    tensor that requires no gradient.  One by one; and those of which, or of what they are views of, one op has given several."""
    alone, pieces = set(), set()
    for n, fake in enumerate(outputs):
        line = _line(fake, _base(fake))
        views = [f.view_of for f in line[1:]]
        if not any(f.requires_grad or f.by_function for f in line) and all(
            v.grad and v.counts and v.func is not DETACH for v in views
        ):
            (pieces if any(v.piece is not None for v in views) else alone).add(n)
    return frozenset(alone), frozenset(pieces)


def creation_of(
    outputs: Sequence[Fake], pieces: Collection[int], remade: Collection[int]
) -> dict[int, str]:
    """What autograd is to note, of those of `outputs` that are views, where making them anew would not say it.  `pieces`: that one op gives several of;
    `remade`: those that were made with gradient mode on, and are made again without."""
    views = [n for n, fake in enumerate(outputs) if _is_told(fake)]
    found = {n: "DEFAULT" for n in views if n in remade}
    found |= dict.fromkeys(pieces, "MULTI_OUTPUT_NODE")
    return found | {n: "INFERENCE_MODE" for n in views if is_noted_as_inference(outputs[n])}


def is_noted_as_inference(view: Fake) -> bool:
    """A view of a view that was made in inference mode counts as made there."""
    while (of := view.view_of) is not None:
        if of.inference:
            return True
        view = of.parent
    return False


def told_views(outputs: Sequence[Fake], made_alike: Collection[int]) -> frozenset[int]:
    """Those of `outputs`, for which autograd has no history, that it knows as views, also of what nobody sees.  What is alone only where the mode
    in which views are made again (as `made_alike` are), or what is noted of it, is as the program made it: autograd refuses writes to others."""
    count = Counter(id(f.memory) for f in outputs)
    found = set()
    for n, f in enumerate(outputs):
        if not _is_told(f):
            # What is cut from another result is no base of that one (autograd/detached_results.py).
            if _is_cut(f) and count[id(f.memory)] > 1:
                found.add(n)
            continue
        line = [g.view_of for g in _line(f, _base(f))[1:]]
        refuses = any(v.piece is not None or not v.grad for v in line)
        if n in made_alike or refuses or count[id(f.memory)] > 1:
            found.add(n)
    return frozenset(found)


def _is_told(fake: Fake) -> bool:
    view = fake.view_of
    return view is not None and view.told and view.func is not DETACH and not fake.memory.inference


def _is_cut(fake: Fake) -> bool:
    view = fake.view_of
    return (
        view is not None and (view.func is DETACH or not view.counts) and not fake.memory.inference
    )


def _base(fake: Fake) -> Fake:
    """The tensor that autograd knows it as a view of; itself where it is none."""
    while (view := fake.view_of) is not None and view.told and view.func is not DETACH:
        fake = view.parent
    return fake


def _line(fake: Fake, base: Fake | None = None) -> list[Fake]:
    """From `base`, or the memory's root, to `fake`, by views."""
    line = [fake]
    while line[-1] is not base and line[-1].view_of is not None:
        line.append(line[-1].view_of.parent)
    return line[::-1]


def _common(fakes: Sequence[Fake]) -> Fake:
    """The last tensor that all are views of, with nothing between it and them that hides its history."""
    lines = []
    for fake in fakes:
        line = _line(fake)
        visible = itertools.takewhile(lambda f: not _is_hidden(f), line)
        lines.append(list(visible))
    common = lines[0][0]
    for together in zip(*lines, strict=False):
        if any(f is not together[0] for f in together):
            break
        common = together[0]
    above = _above_pieces(common)
    return _above_complex(common) if above is None else above


def _above_complex(fake: Fake) -> Fake:
    """What complex numbers are a view of.  Lazily conjugated or negated, they would be a view as a node's result, too, to which autograd refuses
    writes; and where real parts of a node's result are written, autograd takes it to lie at the start of its memory."""
    # Gradients between what was written to and what is computed from it are the graph's.
    whole = fake.is_complex() and not fake.memory.version
    while (whole or fake.is_conj() or fake.is_neg()) and not _is_hidden(fake):
        if fake.view_of is None or not has_history(fake.view_of.parent):
            break
        fake = fake.view_of.parent
    return fake


def _above_pieces(fake: Fake) -> Fake | None:
    """What an op has split last, of the tensors that `fake` is a view of."""
    for f in reversed(_line(fake)):
        if f.view_of is not None and f.view_of.piece is not None and has_history(f.view_of.parent):
            return f.view_of.parent
    return None


def _is_spoilt(fake: Fake) -> bool:
    """Whether something was written to it since an op has split it: autograd refuses to use the pieces then."""
    views = [f.view_of for f in _line(fake) if f.view_of is not None]
    return any(v.piece is not None and v.version < fake.memory.version for v in views)


def _is_hidden(fake: Fake) -> bool:
    """Whether it is a view without its parent's history."""
    view = fake.view_of
    if view is None or not view.parent.requires_grad:
        return False
    return not view.grad or view.func is DETACH


def _hides(fake: Fake, source: Fake) -> bool:
    while fake is not source:
        if _is_hidden(fake):
            return True
        fake = fake.view_of.parent
    return False


def _steps(fake: Fake, source: Fake) -> list[ViewStep]:
    steps: list[ViewStep] = []
    while fake is not source:
        view = fake.view_of
        if (piece := view.piece) is not None:
            of_call = piece.number, piece.call
            steps.append(ViewStep(piece.func, piece.args, {}, view.grad, view.inference, *of_call))
        elif view.func is torch.ops.aten.as_strided.default:
            steps.append(ViewStep(strided, _from(fake, view), {}, view.grad, view.inference))
        else:
            func = view.func if view.counts else DATA
            steps.append(ViewStep(func, view.args, view.kwargs, view.grad, view.inference))
        fake = view.parent
    return steps[::-1]


def _from(fake: Fake, view: ViewOf) -> tuple[Any, ...]:
    """Arguments of `strided`.  A Fake of an input starts at 0, wherever in its storage the input starts."""
    size, stride = (*view.args, *view.kwargs.values())[:2]
    return size, stride, fake.storage_offset() - view.parent.storage_offset()


def strided(tensor: Any, size: Any, stride: Any, behind: Any) -> Any:
    """A view that starts so many elements behind the tensor's start."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + behind)
