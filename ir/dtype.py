"""Element types of the IR.

`DType.of(torch_dtype)` is None for types that no loop handles (complex, quantized, fp8): only library calls use
tensors of those types.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import torch


class DType(enum.Enum):
    """name = (text, kind, bits); kind is "b" bool, "u"/"i" unsigned/signed integer, "f" float."""

    BOOL = ("bool", "b", 8)
    U8 = ("u8", "u", 8)
    I8 = ("i8", "i", 8)
    I16 = ("i16", "i", 16)
    I32 = ("i32", "i", 32)
    I64 = ("i64", "i", 64)
    F16 = ("f16", "f", 16)
    BF16 = ("bf16", "f", 16)
    F32 = ("f32", "f", 32)
    F64 = ("f64", "f", 64)

    __hash__ = object.__hash__  # Enum's own is written in Python

    def __init__(self, text: str, kind: str, bits: int) -> None:
        self.text = text
        self.kind = kind
        self.bits = bits
        self.bytes = bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "ui"

    @property
    def is_half(self) -> bool:
        """16-bit float: stored with 16 bits, computed in F32 (see node.py, Rounding)."""
        return self.kind == "f" and self.bits == 16

    def wrapped(self, value: int) -> int:
        """Returns the integer of this type that has the same last bits."""
        low = 0 if self.kind == "u" else -(1 << self.bits - 1)
        return (value - low) % (1 << self.bits) + low

    def __repr__(self) -> str:
        return self.text

    @staticmethod
    def of(torch_dtype: Any) -> DType | None:
        """Returns the DType of a `torch.dtype`, or None if loops do not handle it."""
        return _FROM_TORCH.get(str(torch_dtype).removeprefix("torch."))

    def to_torch(self) -> Any:
        return getattr(torch, _TORCH_NAMES[self])


_TORCH_NAMES = {
    DType.BOOL: "bool", DType.U8: "uint8", DType.I8: "int8", DType.I16: "int16", DType.I32: "int32",
    DType.I64: "int64", DType.F16: "float16", DType.BF16: "bfloat16", DType.F32: "float32", DType.F64: "float64",
}  # fmt: skip
_FROM_TORCH = {name: dtype for dtype, name in _TORCH_NAMES.items()}


def single(number: float) -> float:
    """Returns the number, rounded as a float of 32 bits."""
    return ctypes.c_float(number).value
