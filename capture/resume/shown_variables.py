"""Variables that are not read again after a break, but that can be seen in the frame.

They are seen by tracebacks with local variables, a debugger after an exception, or the suggestion for a
misspelt name.

In: the states of the frames at a break. Out: `FrameState.shown`. If the program is known to raise, everything
that can be rebuilt is shown. Otherwise only objects that exist anyway are shown, since they cost nothing.
Tensors are not shown, since unused ones would need memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from frameloom.capture.bytecode.liveness import bound_before, live_before
from frameloom.capture.resume.reconstruct import reachable
from frameloom.capture.values.base import NULL, Value, realized
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.iterator import IteratorValue
from frameloom.capture.values.function import BuiltinValue, CellValue
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import FrameState


def choose_shown(states: list[FrameState], raises: bool) -> None:
    needed = [value for state in states for value in _needed(state)]
    made = {id(value) for value in reachable(needed)}
    for state in states:
        index = state.at.index
        candidates = state.slots.keys() if raises else bound_before(state.code)[index]
        state.shown = frozenset(
            name
            for name in candidates - live_before(state.code)[index]
            if (value := state.slots.get(name, NULL)) is not NULL
            and not isinstance(value, CellValue)
            and (_can_be_made(value) if raises else _is_at_hand(value, made))
        )


def _needed(state: FrameState) -> list[Value]:
    live = live_before(state.code)[state.at.index]
    own = [
        value for name, value in state.slots.items() if name in live or isinstance(value, CellValue)
    ]
    return [*own, *(value for value in state.stack if value is not NULL)]


def _is_at_hand(value: Value, made: set[int]) -> bool:
    value = realized(value)
    if is_symbolic(value):
        return True
    if isinstance(value, TensorValue) or issubclass(type(value.real), torch.Tensor):
        return False
    return (
        isinstance(value, ConstValue | BuiltinValue)
        or value.origin is not None
        or id(value) in made
    )


def _can_be_made(value: Value) -> bool:
    try:
        for part in reachable([value]):
            if part.origin is None:
                if isinstance(part, IteratorValue):
                    return False
                part.check_rebuild()
    except (Avoid, Break, Skip):
        return False
    return True
