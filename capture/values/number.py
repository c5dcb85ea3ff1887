"""`tensor.item()` where the program does nothing with the number but check it (`assert lengths.max().item() <= n`), or hand it on."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from frameloom.capture.values.base import Avoid, Value
from frameloom.capture.values.const import ConstValue

if TYPE_CHECKING:
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue

COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)


class NumberValue(Value):
    """`tensor` holds the number, as int64, float64 or complex128; `cls` is the number's type.  Wherever the number itself is asked for, even to say
    what it is, capture starts again with a break at `site`, where it was taken out of its tensor.  Behind the graph, it is taken out there."""

    def __init__(self, tensor: TensorValue, cls: type, site: tuple[CodeType, int]) -> None:
        self.tensor = tensor
        self.cls = cls
        self.site = site

    def type(self) -> type:
        return self.cls

    def needed(self) -> NoReturn:
        raise Avoid(self.site)

    def constant(self) -> Any:
        self.needed()

    def describe(self) -> str:
        self.needed()

    def truth(self, t: Tracer) -> bool:
        self.needed()

    def parts(self) -> list[Value]:
        return [self.tensor]

    def rebuild(self, r: Rebuilder) -> None:
        r.load(self.tensor)
        r.code.call_const_after(torch.Tensor.item)
        if self.cls is bool:
            r.code.call_const_after(bool)


def compare(t: Tracer, fn: Callable[[Any, Any], Any], left: Value, right: Value) -> NumberValue:
    """One of them is a `NumberValue`.  Only what PyTorch compares as exactly as Python does is compared."""
    number = left if isinstance(left, NumberValue) else right
    assert isinstance(number, NumberValue)
    if fn not in COMPARISONS or number.cls is complex:
        number.needed()
    operands = [_operand(number, value) for value in (left, right)]
    result: Any = t.torch_call(fn, operands, {})
    return NumberValue(result, bool, number.site)


def _operand(number: NumberValue, value: Value) -> Value:
    is_float = number.tensor.fake.dtype is torch.float64
    if isinstance(value, NumberValue):
        if value.tensor.fake.dtype is not number.tensor.fake.dtype:
            number.needed()
        return value.tensor
    if not isinstance(value, ConstValue):
        number.needed()
    known = value.real
    exact = type(known) is int and abs(known) < (1 << 53 if is_float else 1 << 62)
    if not exact and not (is_float and type(known) is float):
        number.needed()
    return value
