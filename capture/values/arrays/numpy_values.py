"""NumPy's numbers are constants, computed by NumPy; uses of its arrays break, with their own advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinFunctionType
from typing import Any

from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_FUNCTIONS, NUMPY_SCALARS, is_constant
from frameloom.errors import Break


def concerns_numpy(fn: Any, args: list[Any]) -> bool:
    if isinstance(fn, NUMPY_FUNCTIONS) or (isinstance(fn, type) and issubclass(fn, NUMPY_SCALARS)):
        return True
    return any(isinstance(arg, NUMPY_SCALARS) for arg in args)


def computed_by_numpy(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a NumPy function and returns a number; breaks if the result is an array, which is a new one in
    each call. Also breaks if NumPy warns, so that the plain call shows the warning."""
    with warnings_here("error"):
        try:
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
