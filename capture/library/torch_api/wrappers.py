"""Wrappers that PyTorch puts around functions: the function inside is called instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import WRAPPERS, Args, Kwargs
from frameloom.capture.library import interpreted
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.values.base import Value
from frameloom.capture.values.function import FunctionValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _inside(t: Tracer, wrapper: FunctionValue, variable: str) -> Value:
    """Returns the function that a wrapper holds in this variable."""
    names = wrapper.code.co_freevars
    if variable not in names:
        raise Break("library_call", f"{wrapper.name}(...), another wrapper than is known")
    return t.look(wrapper.closure(t)[names.index(variable)].content)


def _step(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """An optimizer's step. The wrapper itself also imports PyTorch's compiler, to make it break its graph."""
    wrapped = _inside(t, wrapper, "func")
    return interpret(t, interpreted.step_with_gradients_as_asked, [wrapped, *args], kwargs)


def _excluded(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """A function that PyTorch excludes from its own compiler, such as `zero_grad`."""
    return t.call(_inside(t, wrapper, "fn"), args, kwargs)


def _init(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """`Module.__init__` in a process that has used PyTorch's compiler, which notes there that a module is new.
    Only that compiler reads the note, to look at the module as if it had changed."""
    return t.call(_inside(t, wrapper, "init"), args, kwargs)


def _setstate(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """`Module.__setstate__` in such a process."""
    return t.call(_inside(t, wrapper, "setstate"), args, kwargs)


WRAPPERS["_use_grad_for_differentiable.<locals>._use_grad"] = _step
WRAPPERS["_disable_dynamo.<locals>.inner"] = _excluded
WRAPPERS["install_generation_tagging_init.<locals>.patched_init"] = _init
WRAPPERS["install_generation_tagging_init.<locals>.patched_setstate"] = _setstate
