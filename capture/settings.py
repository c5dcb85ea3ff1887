"""PyTorch's thread-wide settings that a program may change: gradient mode and autocast.

A setting is really changed while capturing, so that recorded calls see it, and put back when the capture ends.  New code then brings it into
the state that the program left it in.  The state at the start of the call is part of every entry's guards.  The classes
around these functions (`no_grad`, `set_grad_enabled`, `autocast`) are Python code, which is interpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.builtins import FUNCTIONS, Args, Kwargs
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import NONE, ConstValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.builder import CodeBuilder
    from frameloom.capture.tracer import Tracer

# What sets each, what tells it; both are given all arguments but the last, the new state.
SETTINGS: dict[Any, Callable[..., Any]] = {
    torch._C._set_grad_enabled: torch.is_grad_enabled,
    torch.set_autocast_enabled: torch.is_autocast_enabled,
    torch.set_autocast_dtype: torch.get_autocast_dtype,
    torch.set_autocast_cache_enabled: torch.is_autocast_cache_enabled,
}


class Settings:
    """What one capture changed: (setter, arguments) -> (state before, state now)."""

    def __init__(self) -> None:
        self.changed: dict[tuple[Any, tuple[Any, ...]], tuple[Any, Any]] = {}
        self.nesting = 0  # of autocast blocks: entered less left

    def set(self, t: Tracer, setter: Any, args: tuple[Any, ...], state: Any) -> None:
        key, before = (setter, args), SETTINGS[setter](*args)
        saved = dict(self.changed)

        def undo() -> None:
            setter(*args, before)
            self.changed = saved

        setter(*args, state)
        t.on_undo(undo)
        first = self.changed.get(key, (before, None))[0]
        self.changed = {**self.changed, key: (first, state)}

    def nest(self, t: Tracer, by: int) -> int:
        move = torch.autocast_increment_nesting if by > 0 else torch.autocast_decrement_nesting
        back = torch.autocast_decrement_nesting if by > 0 else torch.autocast_increment_nesting
        depth: int = move()
        self.nesting += by

        def undo() -> None:
            back()
            self.nesting -= by

        t.on_undo(undo)
        return depth

    @property
    def differ(self) -> bool:
        """Whether the program leaves anything in another state."""
        return self.nesting != 0 or any(first != now for first, now in self.changed.values())

    def leave(self) -> None:
        """The end of the capture."""
        for (setter, args), (first, _) in reversed(self.changed.items()):
            setter(*args, first)
        for _ in range(max(self.nesting, -self.nesting)):
            (torch.autocast_decrement_nesting if self.nesting > 0 else torch.autocast_increment_nesting)()  # fmt: skip
        if self.nesting > 0:
            torch.clear_autocast_cache()  # it may hold fakes

    def emit(self, code: CodeBuilder) -> None:
        """The state that the program left."""
        for (setter, args), (first, now) in self.changed.items():
            if first != now:
                code.call_const(setter, *args, now)
                code.emit("POP_TOP")
        for _ in range(max(self.nesting, -self.nesting)):
            code.call_const(torch.autocast_increment_nesting if self.nesting > 0 else leave_autocast)  # fmt: skip
            code.emit("POP_TOP")


def leave_autocast() -> None:
    """Called from new code: how deep it is differs from call to call, so it is asked there whether the cache goes."""
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def _set(setter: Any) -> Any:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        try:
            plain = [t.look(arg).constant() for arg in args]
            if kwargs:
                raise NotConstant
        except NotConstant:
            raise Break("autograd", f"{setter.__name__}(...)") from None
        t.settings.set(t, setter, tuple(plain[:-1]), plain[-1])
        return NONE

    return handler


for _setter in SETTINGS:
    FUNCTIONS[_setter] = _set(_setter)


def _clear(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    torch.clear_autocast_cache()  # a captured piece keeps nothing in it: leaving the block is what clears it
    return NONE


FUNCTIONS[torch.autocast_increment_nesting] = lambda t, args, kwargs: ConstValue(t.settings.nest(t, 1))  # fmt: skip
FUNCTIONS[torch.autocast_decrement_nesting] = lambda t, args, kwargs: ConstValue(t.settings.nest(t, -1))  # fmt: skip
FUNCTIONS[torch.clear_autocast_cache] = _clear
