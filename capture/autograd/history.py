"""Questions about autograd's history of Fakes, and the state in which a backward pass follows it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import counts
from frameloom.errors import Avoid, Break, first_line

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder


NO_END = 1 << 64  # above the numbers of all nodes


def check_inputs(recorder: Recorder) -> None:
    """Breaks where the program gives a history to an input: autograd itself has to do that."""
    for _, real, fake in recorder.inputs:
        requires = real.requires_grad or id(fake) in recorder.history.turned_on
        if fake.grad_fn is not None or (fake.requires_grad and not requires):
            raise Break("gradient", "an input gets a history by being changed in place")


class Histories:
    """The histories of some Fakes, before a backward pass frees what they save."""

    def __init__(self, roots: Sequence[Fake], recorder: Recorder) -> None:
        try:
            with recorder:
                # kept alive together, so that identities are unique
                histories = [history(r) for r in roots]
            functions = {id(f): f for h in histories for f in h}
            kept = {n: tuple(_memories(f, recorder)) for n, f in functions.items()}
            # The identities of tensors that are saved themselves, not as views.
            saved = [t for f in functions.values() for t in saved_by(f)]
            self.itself = {id(t) for t in saved}
        except RuntimeError as error:  # a saved tensor was changed in place
            raise Break("gradient", first_line(error)) from error
        _check_counts([t for t in saved if isinstance(t, Fake)], recorder)
        self.leading: dict[int, set[int]] = {}  # per node number: the roots that lead to the node
        self._ends: dict[int, set[int]] = {}  # the same for leaves, by identity
        for n, h in enumerate(histories):
            for f in h:
                self.leading.setdefault(f._sequence_nr(), set()).add(n)
                if (leaf := getattr(f, "variable", None)) is not None:
                    self._ends.setdefault(id(leaf), set()).add(n)
        # Per identity of a leaf: when its gradient is ready. Nodes run from the last made to the first, and a
        # node's gradients are ready in order.
        self.ready: dict[int, tuple[int, int]] = {}
        for f in functions.values():
            for place, (behind, _) in enumerate(f.next_functions):
                if (leaf := getattr(behind, "variable", None)) is not None:
                    when = -f._sequence_nr(), place
                    self.ready[id(leaf)] = max(when, self.ready.get(id(leaf), when))
        # What each node saves, by its number. Nodes that save nothing may have a number in common.
        self._kept = [(functions[n]._sequence_nr(), own) for n, own in kept.items() if own]
        # Sets of roots that lead to a node that saves tensors; a backward pass from one of them frees these
        # tensors for all.
        self.saving = tuple({frozenset(self.leading[number]): None for number, _ in self._kept})
        self.saved = self.saved_between(0, NO_END)

    def leading_to(self, leaf: Fake) -> frozenset[int]:
        """Returns the roots whose history leads to the leaf."""
        return frozenset(self._ends.get(id(leaf), ()))

    def saved_between(self, first: int, end: int) -> dict[Any, set[int]]:
        """Returns the memories that nodes with these numbers save, with the roots that lead to them."""
        saved: dict[Any, set[int]] = {}
        for number, memories in self._kept:
            for memory in memories if first <= number < end else ():
                if memory is not None:
                    saved.setdefault(memory, set()).update(self.leading[number])
        return saved


def _check_counts(saved: Sequence[Fake], recorder: Recorder) -> None:
    """Avoids `.data` in captured code where needed. Writes to `x.data` and to `x` have separate counters, but
    compiled code saves one tensor for both, so it would notice other writes than eager. So plain Python takes
    the `.data`, and passes it to the next graph."""
    if not recorder.history.data_sites:
        return
    recorded = (f for f in recorder.fakes if f.memory is not None)
    written = {id(f.memory) for f in recorded if f.memory.version and not counts(f)}
    if any(not counts(t) or id(t.memory) in written for t in saved):
        raise Avoid(recorder.history.data_sites[0])


def history(fake: Fake) -> list[Any]:
    """Returns all autograd nodes that it leads to."""
    nodes = {fake.grad_fn: None}
    stack = [fake.grad_fn]
    while stack:
        for f, _ in stack.pop().next_functions:
            if f is not None and f not in nodes:
                nodes[f] = None
                stack.append(f)
    return list(nodes)


def _memories(function: Any, recorder: Recorder) -> Iterator[Any]:
    """Yields the memories that the node saves in eager; None for a tensor that is not a Fake."""
    if type(function).__name__ == "CopySlices":
        yield None  # a pass frees the op on the view, whatever that has saved
        if (part := recorder.history.written_parts.get(function._sequence_nr())) is not None:
            yield from part.saved(saved_by)
    for tensor in saved_by(function):
        memory = tensor.memory if isinstance(tensor, Fake) else None
        yield memory
        if memory in recorder.history.instead:
            other, version = recorder.history.instead[memory]
            if other.version != version:
                raise Break("gradient", "a mask by which was written is changed in place")
            yield other


def saved_by(function: Any) -> Iterator[Any]:
    return (tensor for tensor in places_saved_by(function) if tensor is not None)


def places_saved_by(function: Any) -> Iterator[Any]:
    """Yields what the node can save; None where it does not save it for these operands, or has freed it."""
    for name in _names(type(function)):
        value = getattr(function, name)
        for saved in value if isinstance(value, tuple | list) else (value,):
            yield getattr(saved, "data", None)


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
