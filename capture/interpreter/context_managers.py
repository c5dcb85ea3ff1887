"""PyTorch's thread-wide settings that a program may change.

These are gradient mode, autocast, the default dtype, inference mode and the default device. The capture
really changes a setting, so that recorded calls see it, and restores it at its end. New code then sets the
state that the program left. The state at the start of the call is part of every entry's guards. The classes
around these functions (`no_grad`, `set_grad_enabled`, `autocast`) are Python code, which is interpreted.

Blocks that PyTorch itself enters and leaves (`inference_mode`, `with device:`) store the previous state
where it cannot be read. New code enters and leaves the blocks that the program entered or left, in the
same order and among the same settings. The program's own function modes are such blocks, too. They are never on
PyTorch's stack during the capture: `torch_function.py` calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs, knows
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import NONE, ConstValue
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.emitter import CodeBuilder
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.tensors.cast_cache import Casts

# setter -> getter; both take all arguments except the last one, the new state.
SETTINGS: dict[Any, Callable[..., Any]] = {
    torch._C._set_grad_enabled: torch.is_grad_enabled,
    torch._C._set_default_dtype: torch.get_default_dtype,
    torch.set_autocast_enabled: torch.is_autocast_enabled,
    torch.set_autocast_dtype: torch.get_autocast_dtype,
    torch.set_autocast_cache_enabled: torch.is_autocast_cache_enabled,
}
Key = tuple[Any, tuple[Any, ...]]  # the setter, and its arguments except the last one
States = dict[Key, Any]
GRAD: Key = (torch._C._set_grad_enabled, ())
FUNCTIONS_OFF = torch._C.DisableTorchFunctionSubclass
# Blocks that keep the previous gradient mode as `prev`.
GRAD_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled)


@dataclass(frozen=True)
class Turn:
    """A block that the call entered and did not leave, or that it left but did not enter. `before` and
    `after` are the settings around this step."""

    block: Value
    enters: bool
    before: States
    after: States


class Settings:
    """The settings that one capture changed."""

    GRAD = GRAD

    def __init__(self, casts: Casts) -> None:
        self.casts = casts  # the casts that autocast keeps
        self.start: States = {}
        self.end: States = {}
        self.turns: tuple[Turn, ...] = ()
        self.nesting = 0  # of autocast blocks: number entered minus number left
        self.off = (
            0 if torch._C._is_torch_function_enabled() else 1
        )  # above 0: see functions_are_off
        # Whose function modes are running: PyTorch takes them off the stack.
        self.asked: list[Turn] = []
        self._back: list[Callable[[], Any]] = []  # restore PyTorch's own state; called last first

    def _done(self, t: Tracer, back: Callable[[], Any], undo: Callable[[], Any]) -> None:
        self._back.append(back)

        def take_back() -> None:
            self._back.pop()()
            undo()

        t.on_undo(take_back)

    def _note(self, key: Key) -> None:
        self.start.setdefault(key, read(key))

    def states(self) -> States:
        return {key: read(key) for key in self.start}

    def have_changed(self, before: States, apart_from: Collection[Key] = ()) -> bool:
        """Whether any setting differs from `before`, which `states` returned."""
        wanted = {**self.start, **before}
        return any(read(key) != wanted[key] for key in wanted if key not in apart_from)

    def set(self, t: Tracer, setter: Any, args: tuple[Any, ...], state: Any) -> None:
        key = (setter, args)
        self._note(key)
        before = read(key)
        try:
            setter(*args, state)
        except Exception:  # Python itself raises the right error
            raise Break("autograd", f"{setter.__name__}(...)") from None
        self._done(t, lambda: setter(*args, before), lambda: None)

    def turn(
        self, t: Tracer, block: Value, enters: bool, do: Callable[[], Any], back: Callable[[], Any]
    ) -> None:
        """Enters or leaves a block. Leaving the block that this capture entered last removes its `Turn`."""
        for key in (GRAD, *touched(block)):
            self._note(key)
        before, turns = self.states(), self.turns
        do()

        def undo() -> None:
            self.turns = turns

        self._done(t, back, undo)
        if not enters and turns and turns[-1].enters and turns[-1].block is block:
            self.turns = turns[:-1]
        else:
            self.turns = (*turns, Turn(block, enters, before, self.states()))

    def entered(self) -> Value | None:
        """Returns the innermost block that this capture entered and did not leave."""
        return self.turns[-1].block if self.turns and self.turns[-1].enters else None

    def nest(self, t: Tracer, by: int) -> int:
        if by > 0:
            self.casts.enter()
        move = torch.autocast_increment_nesting if by > 0 else torch.autocast_decrement_nesting
        back = torch.autocast_decrement_nesting if by > 0 else torch.autocast_increment_nesting
        depth: int = move()
        self.nesting += by

        def undo() -> None:
            self.nesting -= by

        self._done(t, back, undo)
        return depth

    @property
    def functions_are_off(self) -> bool:
        """Whether torch functions ignore the `__torch_function__` of their arguments' classes."""
        return self.off > 0 or any(u.enters and u.block.type() is FUNCTIONS_OFF for u in self.turns)

    @contextmanager
    def functions_off(self) -> Iterator[None]:
        """Makes torch functions ignore it, for calls that PyTorch itself makes so."""
        self.off += 1
        try:
            yield
        finally:
            self.off -= 1

    def _mode_turns(self) -> list[Turn]:
        turns = (u for u in self.turns if u.enters and is_function_mode(u.block))
        return [u for u in turns if all(u is not one for one in self.asked)]

    @property
    def function_mode(self) -> Value | None:
        """The innermost function mode of the program that sees torch functions now."""
        turns = self._mode_turns() if self.turns else []
        return turns[-1].block if turns else None

    @contextmanager
    def asking_mode(self) -> Iterator[None]:
        """Takes the innermost function mode off the stack while its own code runs."""
        before = self.turns
        self.asked.append(self._mode_turns()[-1])
        try:
            yield
            if self.turns != before:
                raise Break("context_manager", "a function mode that enters or leaves a block")
        finally:
            self.asked.pop()

    @property
    def leaves_autocast_open(self) -> bool:
        entered = (t.block for t in self.turns if t.enters)
        return self.nesting > 0 or any(block.type() is torch.autocast for block in entered)

    @property
    def differ(self) -> bool:
        """Whether the program leaves any setting in another state."""
        return self.nesting != 0 or bool(self.turns) or self.start != self.end

    def would_differ(self, blocks: list[Value]) -> bool:
        """Whether any setting differs from its first state after these blocks are left, innermost first."""
        states, left = self.states(), []
        for block in blocks:
            turn = next((u for u in self.turns if u.enters and u.block is block), None)
            if turn is not None:
                states.update(turn.before)
                left.append(turn)
            elif block.type() in GRAD_MODES and isinstance(block, ObjectValue):
                before = block.attributes.get("prev")
                if isinstance(before, ConstValue) and GRAD in states:
                    states[GRAD] = before.constant()
        return self.nesting != 0 or len(left) != len(self.turns) or states != self.start

    def leave(self) -> None:
        """Restores PyTorch's settings at the end of the capture."""
        self.end = self.states()
        while self._back:
            self._back.pop()()
        if self.nesting > 0 and not self.casts.outside:
            torch.clear_autocast_cache()  # it may hold fakes

    def emit(self, code: CodeBuilder, r: Rebuilder) -> None:
        """Writes code that sets the state that the program left."""
        now = dict(self.start)
        for turn in self.turns:
            _bring(code, now, turn.before)
            r.do(enter_block if turn.enters else leave_block, turn.block)
            now.update(turn.after)
        _bring(code, now, self.end)
        for _ in range(max(self.nesting, -self.nesting)):
            code.call_const(torch.autocast_increment_nesting if self.nesting > 0 else leave_autocast)  # fmt: skip
            code.emit("POP_TOP")


def read(key: Key) -> Any:
    setter, args = key
    return SETTINGS[setter](*args)


def touched(block: Value) -> list[Key]:
    """Returns the settings that entering the block changes, without the gradient mode."""
    device = getattr(getattr(block, "entered", None), "device", None)
    if block.type() is not torch.autocast or device is None:
        return []
    return [
        (torch.set_autocast_enabled, (device,)),
        (torch.set_autocast_dtype, (device,)),
        (torch.set_autocast_cache_enabled, ()),
    ]


def _bring(code: CodeBuilder, now: States, wanted: States) -> None:
    for key, state in wanted.items():
        if now[key] != state:
            setter, args = key
            code.call_const(setter, *args, state)
            code.emit("POP_TOP")
            now[key] = state


OUTER = "_frameloom_outer"  # what inference_mode restores; PyTorch does not show it


def enter_block(block: Any) -> None:
    """Called from new code."""
    if isinstance(block, TorchFunctionMode):
        torch._C._push_on_torch_function_stack(block)
        return
    if type(block) is torch.inference_mode:
        block.__dict__[OUTER] = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    block.__enter__()


def leave_block(block: Any) -> None:
    """Called from new code."""
    block.__exit__(None, None, None)


def leave_autocast() -> None:
    """Called from new code. The nesting depth differs from call to call, so whether to clear the cache is
    decided at run time."""
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
    t.settings.casts.clear()
    return NONE


FUNCTIONS[torch.autocast_increment_nesting] = lambda t, args, kwargs: ConstValue(t.settings.nest(t, 1))  # fmt: skip
FUNCTIONS[torch.autocast_decrement_nesting] = lambda t, args, kwargs: ConstValue(t.settings.nest(t, -1))  # fmt: skip
FUNCTIONS[torch.clear_autocast_cache] = _clear


# --- `with device:`


def enter_device(t: Tracer, value: ConstValue) -> Value:
    device = value.real
    if t.settings.function_mode is not None:  # it sees how PyTorch makes the block
        raise Break("context_manager", "with torch.device(...) in a function mode")
    t.settings.turn(t, value, True, device.__enter__, lambda: device.__exit__(None, None, None))
    return value


def _leave_device(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    count = torch._C._len_torch_function_stack()
    mode = torch._C._get_function_stack_at(count - 1) if count else None
    if mode is None or getattr(mode, "device", None) != value.real:
        raise Break("context_manager", f"{value.describe()} left out of order")
    entered = t.settings.entered()
    if isinstance(entered, ConstValue) and entered.real == value.real:
        value = entered

    def do() -> None:
        torch._C._pop_torch_function_stack()

    t.settings.turn(t, value, False, do, lambda: torch._C._push_on_torch_function_stack(mode))
    return NONE


FUNCTIONS[torch.device.__enter__] = lambda t, args, kwargs: enter_device(t, t.look(args[0]))  # type: ignore[arg-type]
FUNCTIONS[torch.device.__exit__] = _leave_device


# --- function modes of the program


def is_function_mode(block: Value) -> bool:
    return issubclass(block.type(), TorchFunctionMode)


@knows(torch._C._push_on_torch_function_stack, least=1, most=1)
def _push_mode(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    mode = t.look(args[0])
    if not isinstance(mode, ObjectValue) or not is_function_mode(mode):
        raise Break("context_manager", f"with {mode.describe()}")
    t.settings.turn(t, mode, True, _nothing, _nothing)


@knows(torch._C._pop_torch_function_stack, least=0, most=0)
def _pop_mode(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    mode = t.settings.entered()
    if mode is None or mode is not t.settings.function_mode:
        raise Break("context_manager", "a function mode left out of order")
    t.settings.turn(t, mode, False, _nothing, _nothing)
    return mode


def _nothing() -> None:
    pass
