"""The flags of an array: how its memory is laid out, and whether it may be written."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.errors import Break, Skip
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.arrays.ndarray import ArrayValue

NAMES = frozenset({
    "c_contiguous", "f_contiguous", "contiguous", "fortran", "writeable", "aligned", "behaved", "carray", "farray", "fnc", "forc",
})  # fmt: skip
OF_THE_OWNER = ("base", "resize", "owndata")  # attributes that say whose memory an array is in


def check_owner(array: ArrayValue, name: str) -> None:
    """Called where the program asks whose memory an array is in. That of an array made in the capture belongs
    to a tensor, so the call is left to plain Python."""
    if name in OF_THE_OWNER and array.real is None:
        raise Skip(f"{name} of an array that is made here")


class FlagsValue(Value):
    def __init__(self, array: ArrayValue) -> None:
        self.array = array

    def describe(self) -> str:
        return "flags"

    def parts(self) -> list[Value]:
        return [self.array]

    def getattr(self, t: Tracer, name: str) -> Value:
        check_owner(self.array, name)
        if name not in NAMES:
            self.refuse("numpy", f"flags.{name}")
        return ConstValue(getattr(self._sample(t).flags, name))

    def getitem(self, t: Tracer, key: Value) -> Value:
        if not isinstance(key, ConstValue) or type(key.real) is not str:
            self.refuse("numpy", "flags[...]")
        return self.getattr(t, key.real.lower())

    def _sample(self, t: Tracer) -> Any:
        """Returns an array with these flags."""
        fake = self.array.tensor(t).fake
        if any(isinstance(n, Size) for n in (*fake.shape, *fake.stride())):
            raise Break("numpy", "flags of an array of which sizes vary")
        return self.array.like(t, tuple(fake.shape), tuple(fake.stride()))

    def rebuild(self, r: Rebuilder) -> None:
        r.call(FLAGS, self.array)


FLAGS = operator.attrgetter("flags")
