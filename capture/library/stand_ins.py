"""Functions of PyTorch whose place the code in `interpreted.py` takes, and when."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import calls
from frameloom.capture.builtins import FUNCTIONS, Args, Kwargs, knows
from frameloom.capture.library import interpreted
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import boolean
from frameloom.capture.values.function import FunctionValue
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.config import config
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer


def interpret(t: Tracer, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    value = FunctionValue(function, t.roots.object(function))  # type: ignore[arg-type]
    return calls.inline(t, value, args, kwargs, False)


@knows(torch.autograd.Function.apply.__func__, least=1, keywords="*")
def _apply(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """An autograd Function where no gradient is needed: its forward, without a graph."""
    cls = t.look(args[0])
    if not isinstance(cls, ClassValue) or torch._C._are_functorch_transforms_active():
        raise Break("unknown_call", "autograd.Function.apply(...)")
    tensors = [v for v in map(t.look, [*args, *kwargs.values()]) if isinstance(v, TensorValue)]
    if torch.is_grad_enabled() and any(v.fake.requires_grad for v in tensors):
        kind = "autograd_function" if config.gradients else "gradient"
        raise Break(kind, f"{cls.describe()}.apply(...)")
    setup = torch.autograd.Function.setup_context
    has_setup = getattr(cls.real, "setup_context", setup) is not setup
    if kwargs and has_setup:
        raise Break("unknown_call", f"{cls.describe()}.apply(...) with keywords")
    return interpret(t, interpreted.apply_function, [cls, boolean(has_setup), *args[1:]], kwargs)


def _scan(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return interpret(t, interpreted.scan, args, kwargs)


def _expect_true(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(t.look(args[0]).truth(t))


# Their modules are slow to import; a program that calls them has imported them.
LATE = {
    ("torch._higher_order_ops.associative_scan", "associative_scan"): _scan,
    ("torch.fx.experimental.symbolic_shapes", "expect_true"): _expect_true,
}


def find_late(function: Any) -> Callable[..., Value] | None:
    """The entry of a function whose module this package does not import."""
    found = LATE.get((function.__module__, function.__qualname__))
    if found is not None:
        module = importlib.import_module(function.__module__)
        if getattr(module, function.__name__, None) is not function:
            return None
        FUNCTIONS[function] = found
    return found
