"""NumPy's functions that NumPy has in Python: their code is interpreted, and the calls in it are captured."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs
from frameloom.capture.library.numpy_api.calls import evaluated
from frameloom.capture.values.arrays.ndarray import ArrayValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_DTYPES, NUMPY_FUNCTIONS, ConstValue
from frameloom.capture.values.containers.container import ListValue, SliceValue, TupleValue
from frameloom.capture.values.static import ClassValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _interpreting(fn: Any, implementation: FunctionType) -> Any:
    """Returns the rule for a function that NumPy dispatches by the classes of its arguments."""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        kinds = {kind for value in (*args, *kwargs.values()) for kind in _kinds(t, value)}
        if ArrayValue in kinds and None not in kinds:
            return t.call(t.pinned(implementation), args, kwargs)
        return evaluated(t, args, kwargs, fn)

    return rule


def _kinds(t: Tracer, value: Value) -> set[Any]:
    """Returns the classes of values in an argument; with None, if one might have a method of its own for NumPy's
    function."""
    value = t.look(value)
    if isinstance(value, TupleValue | ListValue) and value.type() in (tuple, list):
        return {kind for item in value.items for kind in _kinds(t, item)}
    known = isinstance(value, ArrayValue | ConstValue | SliceValue | ClassValue)
    return {type(value) if known else None}


if NUMPY_DTYPES:
    import numpy as NUMPY

    for _owner in (NUMPY, NUMPY.linalg, NUMPY.fft):
        for _fn in vars(_owner).values():
            _implementation = getattr(_fn, "_implementation", None)
            if isinstance(_fn, NUMPY_FUNCTIONS[1]) and isinstance(_implementation, FunctionType):
                FUNCTIONS.setdefault(_fn, _interpreting(_fn, _implementation))
