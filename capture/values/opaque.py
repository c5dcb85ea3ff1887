"""Objects about which nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.values.base import ExistingValue, Value
from frameloom.capture.values.identity import identity_key
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


class OpaqueValue(ExistingValue):
    """An object about which nothing is known: it can be passed on, stored and compared by identity; other
    uses break."""

    def _fail(self, kind: str, use: str) -> NoReturn:
        from frameloom.capture.values.numpy_values import is_of_numpy

        raise Break("numpy" if is_of_numpy(self.real) else kind, use)

    def getattr(self, t: Tracer, name: str) -> Value:
        self._fail("attribute", f"{self.describe()}.{name}")

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self._fail("unknown_call", f"{self.describe()}(...)")

    def truth(self, t: Tracer) -> bool:
        self._fail("opaque_object", f"bool({self.describe()})")

    def length(self, t: Tracer) -> int:
        self._fail("opaque_object", f"len({self.describe()})")

    def iterate(self, t: Tracer) -> Value:
        self._fail("opaque_iterable", f"iter({self.describe()})")

    def getitem(self, t: Tracer, key: Value) -> Value:
        self._fail("opaque_object", f"{self.describe()}[...]")

    def key(self, t: Tracer) -> Any:
        if class_attribute(type(self.real), "__hash__") is not object.__hash__:
            return super().key(t)
        return identity_key(t, self)
