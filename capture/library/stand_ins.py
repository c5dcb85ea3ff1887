"""Functions of PyTorch that code in `interpreted.py` replaces, and when."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter import calls
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs
from frameloom.capture.library import interpreted
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import boolean
from frameloom.capture.values.function import FunctionValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def interpret(t: Tracer, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    value = FunctionValue(function, t.roots.object(function))  # type: ignore[arg-type]
    return calls.inline(t, value, args, kwargs, False)


def _scan(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return interpret(t, interpreted.scan, args, kwargs)


def _expect_true(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(t.look(args[0]).truth(t))


# Their modules are slow to import; a program that calls them has imported them.
IMPORTED_LATER = {
    ("torch._higher_order_ops.associative_scan", "associative_scan"): _scan,
    ("torch.fx.experimental.symbolic_shapes", "expect_true"): _expect_true,
}


def find_stand_in(function: Any) -> Callable[..., Value] | None:
    """Returns the entry of a function whose module this package does not import."""
    handler = IMPORTED_LATER.get((function.__module__, function.__qualname__))
    if handler is not None:
        module = importlib.import_module(function.__module__)
        if getattr(module, function.__name__, None) is not function:
            return None
        FUNCTIONS[function] = handler
    return handler
