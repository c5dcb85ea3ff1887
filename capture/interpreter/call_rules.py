"""The rules for calls of library functions; the modules of `capture/library` register them.

In: a callable of Python or PyTorch. Out: a rule `(t, args, kwargs) -> value` that captures the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from frameloom.capture.values import policy
from frameloom.capture.values.base import Value
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Args = list[Value]
Kwargs = dict[str, Value]
Known = Callable[["Tracer", Args, Kwargs], Any]
ValueRule = TypeVar("ValueRule", bound=Callable[..., Any])
FUNCTIONS: dict[Any, Known] = {}
# The same for kinds of callables. The key is their class. For PyTorch's own Python functions that are made
# or imported later, such as wrappers, it is the qualified name of their code. The rule gets the callable
# (for a Python function its value), too; None means that it has no answer for this one.
KindRule = Callable[["Tracer", Any, Args, Kwargs], Value | None]
CALLABLES: dict[type | str, KindRule] = {}


def knows(
    *functions: Any, least: int = 0, most: int | None = None, keywords: str = ""
) -> Callable[[Known], Known]:
    """Registers the rule for calls of these functions, with `least` to `most` positional arguments (no limit
    if `most` is None) and these keywords ("*": any). Other calls break: Python raises the right error. A rule may
    return a value, or None, a bool or an int."""
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
            result = handler(t, args, kwargs)
            return result if isinstance(result, Value) else t.from_python(result)

        for function in functions:
            FUNCTIONS[function] = checked
        return handler

    return register


def arity(rule: Callable[..., Any]) -> dict[str, int | None]:
    """Returns `least` and `most` for a rule that gets the tracer and the positional arguments."""
    code = rule.__code__  # type: ignore[attr-defined]
    most = code.co_argcount - 1
    takes_any = code.co_flags & inspect.CO_VARARGS
    return {"least": most - len(rule.__defaults__ or ()), "most": None if takes_any else most}  # type: ignore[attr-defined]


def knows_of_values(*functions: Any) -> Callable[[ValueRule], ValueRule]:
    """The same as `knows` for a rule that gets the positional arguments, as many as its signature takes."""

    def register(rule: ValueRule) -> ValueRule:
        knows(*functions, **arity(rule))(lambda t, args, kwargs: rule(t, *args))
        return rule

    return register


def knows_kind(*kinds: type | str) -> Callable[[KindRule], KindRule]:
    """Registers the rule for calls of all callables of these kinds."""

    def register(rule: KindRule) -> KindRule:
        CALLABLES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def rule_of_class(cls: type) -> KindRule | None:
    """Returns the rule for callables of a class written in C."""
    return next((CALLABLES[base] for base in cls.__mro__ if base in CALLABLES), None)


def has_rule(function: FunctionType) -> bool:
    """Whether a rule says what calls of a Python function do, in place of its code."""
    known = function.__code__.co_qualname in CALLABLES and policy.is_torchs(function.__globals__)
    return function in FUNCTIONS or known


def breaks(kind: str, *functions: Any) -> None:
    """Makes calls of these functions break the graph."""
    for function in functions:
        name = getattr(function, "__name__", "?")

        def handler(t: Tracer, args: Args, kwargs: Kwargs, name: str = name) -> Value:
            raise Break(kind, f"{name}(...)")

        FUNCTIONS[function] = handler
