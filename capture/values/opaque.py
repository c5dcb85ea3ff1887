"""Objects about which nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.values.arrays.numpy_values import is_of_numpy
from frameloom.capture.values.base import ExistingValue
from frameloom.capture.values.identity import identity_key

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


class OpaqueValue(ExistingValue):
    """An object about which nothing is known: it can be passed on, stored and compared by identity; other
    uses break."""

    def refuse(self, kind: str, use: str) -> NoReturn:
        super().refuse("numpy" if is_of_numpy(self.real) else kind, use)

    def key(self, t: Tracer) -> Any:
        if class_attribute(type(self.real), "__hash__") is not object.__hash__:
            return super().key(t)
        return identity_key(t, self)
