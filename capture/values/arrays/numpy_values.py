"""NumPy's numbers are constants, computed by NumPy; uses of its arrays break, with their own advice.

An error of floats does what `numpy.seterr` says. What is computed by NumPy during the capture, or by a graph,
only ignores it, so there the guards compare that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from frameloom.capture import _capture
from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_FUNCTIONS, NUMPY_SCALARS, is_constant
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

if NUMPY_FUNCTIONS:
    import numpy

    try:
        from numpy._core.umath import _extobj_contextvar, _get_extobj_dict

        ERROR_STATE = (_extobj_contextvar, _get_extobj_dict)
    except ImportError:  # NumPy 1
        ERROR_STATE = (None, numpy.geterrobj)  # type: ignore[attr-defined]


def check_error_state(t: Tracer, fn: Any) -> None:
    """Breaks if NumPy does more than to warn of errors of floats, and notes a guard on that."""
    quiet = _capture.numpy_is_quiet(*ERROR_STATE)
    t.guards.returns(_capture.numpy_is_quiet, ERROR_STATE, quiet)
    if not quiet:
        name = getattr(fn, "__name__", fn)
        raise Break("numpy", f"{name}(...) where NumPy reports errors of floats")


def concerns_numpy(fn: Any, args: list[Any]) -> bool:
    if isinstance(fn, NUMPY_FUNCTIONS) or (isinstance(fn, type) and issubclass(fn, NUMPY_SCALARS)):
        return True
    return any(isinstance(arg, NUMPY_SCALARS) for arg in args)


def computed_by_numpy(
    t: Tracer, fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Calls a NumPy function and returns a number; breaks if the result is an array, which is a new one in
    each call. Also breaks if NumPy warns, so that the plain call shows the warning."""
    with warnings_here("error"):
        try:
            try:
                with numpy.errstate(all="raise"):
                    result = fn(*args, **kwargs)
            except FloatingPointError:
                check_error_state(t, fn)
                result = fn(*args, **kwargs)
        except Warning as warning:
            raise Break("warning", str(warning)) from None
    parts = result if type(result) in (tuple, list) else [result]
    if not all(is_constant(part) for part in parts):
        raise Break("numpy", f"{getattr(fn, '__name__', fn)}(...)")
    return result


class_module = type.__dict__["__module__"].__get__  # not changed by a metaclass


def is_of_numpy(obj: Any) -> bool:
    """Whether NumPy made the object, or it is one of its functions. Runs no code of the program's objects."""
    module = obj.__module__ if type(obj) is BuiltinFunctionType else class_module(type(obj))
    return isinstance(module, str) and module.partition(".")[0] == "numpy"


def call_kind(fn: Any, args: Iterable[Value]) -> str:
    """Returns the kind of break for a call that cannot run during the capture."""
    if is_of_numpy(fn) or any(_stands_for_numpys(value) for value in args):
        return "numpy"
    return "unknown_call"


def _stands_for_numpys(value: Value) -> bool:
    if value.real is not None:
        return is_of_numpy(value.real)
    return value.cls is not None and str(class_module(value.cls)).partition(".")[0] == "numpy"
