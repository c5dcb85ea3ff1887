"""Objects nothing is known about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.lookup import class_attribute
from frameloom.capture.values.base import Value

if TYPE_CHECKING:
    from frameloom.capture.origin import Origin
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer


class OpaqueValue(Value):
    """An object that nothing is known about: it can be passed on, stored and compared by identity; other uses break."""

    def __init__(self, real: Any, origin: Origin | None) -> None:
        self.real = real
        self.origin = origin

    def type(self) -> type:
        return type(self.real)

    def key(self, t: Tracer) -> Any:
        if class_attribute(type(self.real), "__hash__") is not object.__hash__:
            return super().key(t)
        return self.real

    def rebuild(self, r: Rebuilder) -> None:
        r.load_constant_object(self.real)
