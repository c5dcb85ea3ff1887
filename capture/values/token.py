"""Numbers that are valid only in this process: the identity of an object or of a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Value
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class TokenValue(Value):
    """The result of `make(*of)`: it can be compared with other such numbers, stored in sets and dictionaries,
    and rebuilt by new code."""

    cls = int
    is_true = True

    def __init__(self, make: Callable[..., int], of: list[Value]) -> None:
        self.make = make
        self.of = of

    def parts(self) -> list[Value]:
        return self.of

    def key(self, t: Tracer) -> Any:
        t.has_token_keys = True
        return TokenKey(t, self)

    def rebuild(self, r: Rebuilder) -> None:
        r.call(self.make, *self.of)


class TokenKey:
    """A key of a token; two are equal if the objects are the same."""

    def __init__(self, t: Tracer, token: TokenValue) -> None:
        self.t = t
        self.stands_for = token

    def __hash__(self) -> int:
        return hash(self.stands_for.make)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenKey) or other.stands_for.make is not self.stands_for.make:
            return False
        pairs = zip(self.stands_for.of, other.stands_for.of, strict=True)
        return all(self.t.identical(a, b) for a, b in pairs)


def tell_apart(t: Tracer, key: Any, keys: Iterable[Any]) -> None:
    """Breaks if looking up `key` among the others needs a comparison of such a number with a plain number."""
    if t.has_token_keys and isinstance(key, TokenKey | tuple | int):
        for other in keys:
            if _may_be_compared(key, other):
                raise Break("identity", "a look-up of an identity among numbers")


def _may_be_compared(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and any(map(_may_be_compared, a, b))
    tokens = isinstance(a, TokenKey), isinstance(b, TokenKey)
    return any(tokens) and not all(tokens) and isinstance(b if tokens[0] else a, int)
