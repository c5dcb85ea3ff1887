"""Runs calls of pure functions on constants during the capture."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import (
    HEAP_TYPE,
    has_programs_methods,
)
from frameloom.capture.values.arrays.numpy_values import (
    call_kind,
    computed_by_numpy,
    concerns_numpy,
)
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import boolean
from frameloom.capture.values.containers.container import (
    TupleValue,
    plain_inside,
)
from frameloom.capture.values.numbers.size import computed_size
from frameloom.capture.values.numbers.size_truth import compared_sizes
from frameloom.capture.values.numbers.symbolic import (
    computed,
    is_symbolic,
    outcome,
)
from frameloom.capture.values.object import boxed
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def evaluate(
    t: Tracer, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Calls the pure function `fn` if all arguments are constants; breaks the graph otherwise."""
    if not kwargs and any(is_symbolic(t.look(a)) for a in args):
        if fn is divmod and len(args) == 2:
            parts = (operator.floordiv, operator.mod)
            return TupleValue([evaluate(t, part, args, {}) for part in parts])
        numbers = [t.look(a) for a in args]
        if (truth := compared_sizes(t, fn, numbers)) is not None:
            return truth
        if (size := computed_size(t, fn, numbers)) is not None:
            return size
        if (known := outcome(t, fn, numbers)) is not None:
            return boolean(known)
        if (number := computed(t, fn, numbers)) is not None:
            return number
    try:
        plain_args = [plain_inside(t, _inside(t, fn, a)) for a in args]
        plain_kwargs = {name: plain_inside(t, _inside(t, fn, a)) for name, a in kwargs.items()}
    except NotConstant:
        raise Break(call_kind(fn, args), f"{getattr(fn, '__name__', fn)}(...)") from None
    if (
        getattr(fn, "__name__", "") == "__new__"
        and plain_args
        and plain_args[0].__flags__ & HEAP_TYPE
    ):
        raise Break("unknown_call", f"{plain_args[0].__name__}(...)")
    try:
        if concerns_numpy(fn, plain_args):
            result = computed_by_numpy(t, fn, plain_args, plain_kwargs)
        else:
            result = fn(*plain_args, **plain_kwargs)
    except Break:
        raise
    except Exception as error:
        return t.raise_(type(error), *error.args)
    if hasattr(type(result), "__next__"):  # has a state, and each run needs an iterator of its own
        raise Break("unknown_call", f"{getattr(fn, '__name__', fn)}(...)")
    return t.from_python(result)


def _inside(t: Tracer, fn: Callable[..., Any], value: Value) -> Value:
    """Returns the number or text inside an instance of a subclass of int, float or str if the function, which is
    written in C, reads only that: no pure function returns such an argument itself."""
    value = t.look(value)
    inside = boxed(value)
    if inside is None or fn is slice:
        return value
    is_its_own = getattr(fn, "__objclass__", None) is inside.type()
    return value if has_programs_methods(value.type()) and not is_its_own else inside
