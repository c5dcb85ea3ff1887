"""What programs tell PyTorch's compiler about graph breaks.

`torch._dynamo.error_on_graph_break`: whether a break is an error, for a part of a program. PyTorch keeps the
    answer in a global variable of its compiler, which its functions read and write. They are interpreted, so
    that a break finds the value that the program has set there (resume/forbidden_breaks.py).
`torch._dynamo.nonstrict_trace`: a function in which `torch._dynamo.graph_break()` is ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows, knows_kind
from frameloom.capture.interpreter.calls import inline
from frameloom.capture.interpreter.classes import bare_instance, initialize
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.function import FunctionValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

MANAGER = "ErrorOnGraphBreakDecoratorContextManager"
INTERPRETED = (
    f"{MANAGER}.__init__", f"{MANAGER}.__enter__", f"{MANAGER}.__exit__",
    "wrap_dunder_call_ctx_manager", "wrap_dunder_call_ctx_manager.<locals>.inner",
    "_get_error_on_graph_break", "_set_error_on_graph_break",
)  # fmt: skip


@knows_kind("error_on_graph_break")
def _manager(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    cls = function.globals(t).real.get(MANAGER)
    if cls is None:
        return None
    made = bare_instance(t, cls, [], {})
    initialize(t, made, args, kwargs)
    return made


def _interpret(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    return inline(t, function, args, kwargs, resumable=True)


for _name in INTERPRETED:
    knows_kind(_name)(_interpret)


# --- nonstrict_trace


def nonstrict(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that `nonstrict_trace(fn)` makes."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return called(fn, *args, **kwargs)

    return wrapped


def called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)


@knows(called, least=1, most=None, keywords="*")
def _called(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    before, t.options.ignores_breaks = t.options.ignores_breaks, True
    try:
        return t.call(args[0], args[1:], kwargs)
    finally:
        t.options.ignores_breaks = before


@knows_kind("nonstrict_trace.<locals>.wrapped")
def _wrapped(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    names = function.code.co_freevars
    inside = function.closure(t)[names.index("traceable_fn")].content
    return _called(t, [inside, *args], kwargs)


@knows_kind("nonstrict_trace")
def _nonstrict(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    return interpret(t, nonstrict, args, kwargs)


@knows_kind("graph_break")
def _graph_break(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    if t.options.ignores_breaks:
        return ConstValue(None)
    raise Break("library_call", "graph_break(...)")
