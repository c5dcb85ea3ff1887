"""The rules for calls of library functions; the modules of `capture/library` register them.

In: a callable of Python or PyTorch. Out: a rule `(t, args, kwargs) -> value` that captures the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Value
from frameloom.capture.values.function import FunctionValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Args = list[Value]
Kwargs = dict[str, Value]
Known = Callable[["Tracer", Args, Kwargs], Value]
FUNCTIONS: dict[Any, Known] = {}
# The same for PyTorch's wrapper functions, of which there is a new one for each function that they wrap. The
# key is the qualified name of their code; the rule gets the wrapper, too.
WRAPPERS: dict[str, Callable[[Tracer, FunctionValue, Args, Kwargs], Value]] = {}


def knows(
    *functions: Any, least: int = 0, most: int | None = None, keywords: str = ""
) -> Callable[[Known], Known]:
    """Registers the rule for calls of these functions, with `least` to `most` positional arguments (no limit
    if `most` is None) and these keywords ("*": any). Other calls break: Python raises the right error."""
    allowed = frozenset(keywords.split())

    def register(handler: Known) -> Known:
        def checked(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
            count = len(args)
            if (
                count < least
                or (most is not None and count > most)
                or ("*" not in allowed and not allowed.issuperset(kwargs))
            ):
                raise Break("unknown_call", f"{getattr(functions[0], '__name__', '?')}(...)")
            return handler(t, args, kwargs)

        for function in functions:
            FUNCTIONS[function] = checked
        return handler

    return register


def breaks(kind: str, *functions: Any) -> None:
    """Makes calls of these functions break the graph."""
    for function in functions:
        name = getattr(function, "__name__", "?")

        def handler(t: Tracer, args: Args, kwargs: Kwargs, name: str = name) -> Value:
            raise Break(kind, f"{name}(...)")

        FUNCTIONS[function] = handler
