"""NumPy: its numbers are constants that it computes itself while capturing; what concerns its arrays breaks, with advice of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_FUNCTIONS, NUMPY_SCALARS, is_constant
from frameloom.errors import Break


def concerns_numpy(fn: Any, args: list[Any]) -> bool:
    if isinstance(fn, NUMPY_FUNCTIONS) or (isinstance(fn, type) and issubclass(fn, NUMPY_SCALARS)):
        return True
    return any(isinstance(arg, NUMPY_SCALARS) for arg in args)


def computed_by_numpy(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A number: an array is another one in each call.  What NumPy warns of it says when it is called plainly."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = fn(*args, **kwargs)
        except Warning as warning:
            raise Break("warning", str(warning)) from None
    parts = result if type(result) in (tuple, list) else [result]
    if not all(is_constant(part) for part in parts):
        raise Break("numpy", f"{getattr(fn, '__name__', fn)}(...)")
    return result


def is_of_numpy(obj: Any) -> bool:
    """Whether NumPy made the object, or it is one of its functions."""
    module = getattr(obj, "__module__", None) or ""
    return any(
        isinstance(name, str) and name.partition(".")[0] == "numpy"
        for name in (module, type(obj).__module__)
    )


def call_kind(fn: Any, args: Iterable[Value]) -> str:
    """The kind of break where a call cannot be made while capturing."""
    if is_of_numpy(fn) or any(is_of_numpy(value.real) for value in args if value.real is not None):
        return "numpy"
    return "unknown_call"
