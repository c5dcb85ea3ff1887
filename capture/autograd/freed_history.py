"""Results of captured code whose history was freed by a backward pass inside that code.

In eager such a tensor still has a history; a second pass through it raises autograd's error about freed
tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.autograd.history import history, places_saved_by, saved_by
from frameloom.capture.recording.unbacked_sizes import avoid_unbacked
from frameloom.capture.tensors.cast_cache import without_autocast
from frameloom.capture.tensors.fake import Fake
from frameloom.errors import Avoid, Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.tensor import TensorValue

TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if "
    "you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
)


class FreedHistory(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, made: tuple[Any, ...], *ends: Any) -> Any:
        context.save_for_backward(*made[1:])
        return made[0]  # not an argument of its own, because a write to an argument would count

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        _ = context.saved_tensors  # raises if one of them was changed
        raise RuntimeError(TWICE)


@dataclass(frozen=True)
class FreedPath:
    """The freed history of an output. `ends`: the ends that it leads to; `saved`: the outputs, and the ends
    (as complements), that eager's nodes save which a pass reaches before the first freed node."""

    ends: tuple[int, ...]
    saved: tuple[int, ...]


def with_freed_histories(
    outputs: tuple[Any, ...], which: Mapping[int, FreedPath], *ends: Any
) -> tuple[Any, ...]:
    """Called from new code. Returns the outputs, those of `which` with a freed history, in the order in which
    they are computed from each other. A backward pass that starts from other outputs, too, reaches the ends
    only after it has reached these nodes."""
    made = list(outputs)
    with torch.enable_grad():
        anchor = torch.empty(0, requires_grad=True)
        for n, freed_path in which.items():
            made[n] = made[n].detach()
            saved = [made[k] if k >= 0 else ends[~k] for k in freed_path.saved]
            saved = [t for t in saved if not t.is_inference()]
            leading = [ends[k] for k in freed_path.ends]
            made[n] = FreedHistory.apply((made[n], *saved), anchor, *leading)  # type: ignore[no-untyped-call]
    return tuple(made)


class FreedOutputs:
    """The outputs whose history is freed."""

    def __init__(self, t: Tracer, outputs: list[TensorValue], may_break: bool) -> None:
        self.which: dict[int, FreedPath] = {}
        ends: dict[int, Any] = {}
        given = {id(f): key for key, _, f in t.recorder.inputs}
        freed: list[tuple[int, int]] = []
        unfreed = _UnfreedHistories(t.backward.last_backward)
        for n, value in enumerate(outputs if t.backward.last_backward else ()):
            node = _node(t, value.fake)
            if node is not None and not unfreed.covers(node) and _is_freed(t, value):
                freed.append((node._sequence_nr(), n))
        for _, n in sorted(freed):
            with t.recorder:
                nodes = history(outputs[n].fake)
            own = [f for node in nodes if id(f := getattr(node, "variable", None)) in given]
            ends.update({id(f): given[id(f)] for f in own})
            memories, before = _before_freed(nodes)
            if may_break:
                _separate_graph(t, before)
            read = [f for _, _, f in t.recorder.inputs if f.memory in memories]
            ends.update({id(f): given[id(f)] for f in read})
            if may_break and any(_are_views(outputs[n].fake, o.fake) for o in outputs):
                # New histories do not lead from one to the other, so a later write would go unnoticed.
                raise Avoid(t.backward.last_backward_site)
            saved = [k for k, o in enumerate(outputs) if o.fake.memory in memories]
            saved += [~[*ends].index(id(f)) for f in read]
            self.which[n] = FreedPath(tuple([*ends].index(id(f)) for f in own), tuple(saved))
        self.ends = [*ends.values()]

    def emit(self, r: Rebuilder) -> None:
        """Emits the call, with the outputs on top of the stack."""
        r.code.start_call_after(with_freed_histories)
        r.code.load_const(self.which)
        for origin in self.ends:
            r.load_origin(origin)
        r.code.call(2 + len(self.ends))


def _are_views(a: Fake, b: Fake) -> bool:
    """Whether both share memory and `b` has a history."""
    return a is not b and a.memory is b.memory and b.requires_grad


class _UnfreedHistories:
    """Nodes whose histories no pass has freed. It walks shared histories once, because asking autograd takes
    a pass for each of a thousand results."""

    def __init__(self, last_backward: int) -> None:
        self.last_backward = last_backward
        self.known: set[Any] = {None}

    def covers(self, root: Any) -> bool:
        seen, stack = {root}, [root]
        while stack:
            node = stack.pop()
            if node in self.known:
                continue
            if node._sequence_nr() < self.last_backward and _may_be_freed(node):
                return False
            new = [f for f, _ in node.next_functions if f not in seen]
            seen.update(new)
            stack += new
        self.known |= seen
        return True


def _may_be_freed(node: Any) -> bool:
    if type(node).__name__ == "CopySlices":
        return True  # the op on the view that it holds is hidden
    try:
        return any(tensor is None for tensor in places_saved_by(node))
    except RuntimeError:
        return True


def _before_freed(nodes: Sequence[Any]) -> tuple[set[Any], list[Any]]:
    """Returns the nodes that a pass reaches before the first freed node, and the memories that they save."""
    memories: set[Any] = set()
    nodes = sorted(nodes, key=lambda node: -node._sequence_nr())
    for n, node in enumerate(nodes):
        try:
            saved = [*saved_by(node)]
        except RuntimeError:
            return memories, nodes[:n]
        memories.update(f.memory for f in saved if isinstance(f, Fake) and f.memory is not None)
    return memories, nodes


def _separate_graph(t: Tracer, nodes: Sequence[Any]) -> None:
    """Captures again, with a break before the first of these nodes that was made after the backward pass: in
    eager, a pass that fails has already given gradients to the tensors that they lead to."""
    numbers = {
        number for node in nodes if (number := node._sequence_nr()) >= t.backward.last_backward
    }
    for fake in [*t.recorder.fakes] if numbers else ():
        if fake.made_at is None or t.session.is_avoided(*fake.made_at):
            continue
        node = _node(t, fake)
        if node is not None and node._sequence_nr() in numbers:
            raise Avoid(fake.made_at)


def _node(t: Tracer, fake: torch.Tensor) -> Any:
    try:
        with t.recorder:  # autograd makes a new history for a view whose base was written to
            return fake.grad_fn
    except RuntimeError:  # lost by a write; this is checked again at the end of the graph
        return None


def _is_freed(t: Tracer, value: TensorValue) -> bool:
    recorder, before = t.recorder, t.recorder.snapshot()
    leaves = [f for _, _, f in recorder.inputs if f.requires_grad]
    leaves += [f for f, _ in t.backward.leaves.values()]
    if not leaves:
        return False

    def ask() -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            seed = torch.ones_like(value.fake)
            return torch.autograd.grad(
                value.fake, leaves, seed, retain_graph=True, allow_unused=True
            )

    try:
        with without_autocast():
            recorder.run(ask, (), {})
    except (RuntimeError, IndexError) as error:
        return "a second time" in str(error)
    except Break as cause:
        avoid_unbacked(recorder)
        raise Skip(f"a history that cannot be followed: {cause}") from cause
    finally:
        recorder.restore(before)
    return False


def without_histories(t: Tracer, outputs: list[TensorValue], which: Collection[int]) -> list[Any]:
    """Returns the outputs as the graph returns them, independent of the program's current modes."""
    with torch.inference_mode(False), torch.no_grad():
        return [
            t.recorder.run(torch.Tensor.detach, (value.fake,), {}) if n in which else value.fake
            for n, value in enumerate(outputs)
        ]
