"""`tensor.item()` if the program checks the number, passes it on, or computes with it like any float.

An example is `assert lengths.max().item() <= n`. The graph computes what Python would compute from it, in
double precision, if Python cannot raise there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from frameloom.capture.bytecode.opcodes import IN_PLACE
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.numbers.symbolic import outcome
from frameloom.capture.values.numbers.unbacked_items import may_be_sizes, sizes_in
from frameloom.errors import Avoid

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.tensor import TensorValue

COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)
OF_SIZES = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
LARGEST = torch.finfo(torch.float32).max
UNARY = (operator.neg, operator.pos)


class NumberValue(Value):
    """A number of a tensor. `tensor` holds it as int64, float64 or complex128; `cls` is its type. If the
    number itself is needed, even for a message, the capture starts again with a break at `site`, where it
    was taken from its tensor. New code takes it from the tensor after the graph."""

    def __init__(
        self, tensor: TensorValue, cls: type, site: tuple[CodeType, int], most: float = math.inf
    ) -> None:
        self.tensor = tensor
        self.cls = cls
        self.site = site
        self.most = most  # upper bound of its absolute value, if it is finite
        self.least = 0.0  # lower bound of its absolute value, unless it is NaN; 0 if unknown
        self._size: ConstValue | None = None

    @property
    def fits(self) -> bool:
        """Whether PyTorch accepts it as a 32-bit number: it refuses larger ones."""
        return self.most <= LARGEST

    def size(self, t: Tracer) -> ConstValue:
        """Returns an int as a size."""
        if self._size is None:
            if self.cls is not int or not may_be_sizes(t, self.tensor.fake):
                self.needed()
            (self._size,) = sizes_in(t, self.tensor, self.site)
            t.on_undo(partial(setattr, self, "_size", None))
        return self._size

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
    """Captures a comparison with a `NumberValue`, if PyTorch compares the operands as exactly as Python."""
    number = _number_of(left, right)
    if fn not in COMPARISONS or number.cls is complex:
        number.needed()
    operands = [_operand(number, value) for value in (left, right)]
    result: Any = t.torch_call(fn, operands, {})
    return NumberValue(result, bool, number.site)


def is_integer(value: Value) -> bool:
    if isinstance(value, NumberValue):
        return value.cls is int
    return isinstance(value, ConstValue) and value.type() is int


def as_size(t: Tracer, value: Value) -> Value:
    """Returns an int from a tensor as a size, and other values unchanged."""
    return value.size(t) if isinstance(value, NumberValue) else value


def combine(t: Tracer, fn: Callable[..., Any], left: Value, right: Value) -> Value:
    """Captures a binary operator or a comparison; one operand is a `NumberValue`, the other a number."""
    fn = IN_PLACE[fn][1] if fn in IN_PLACE else fn
    if fn in OF_SIZES and all(map(is_integer, (left, right))):
        return t.evaluate(fn, [as_size(t, left), as_size(t, right)], {})
    if fn not in ARITHMETIC:
        return compare(t, fn, left, right)
    operands, number = _floats(left, right), _number_of(left, right)
    a, b = (_most(t, v) for v in (left, right))
    if fn is operator.truediv:
        b = _least(right)
        if not b:
            number.needed()  # Python raises for 0
        most = a / b
    else:
        most = a * b if fn is operator.mul else a + b
    return _computed(t, fn, operands, number, most)


def unary(t: Tracer, fn: Callable[[Any], Any], number: NumberValue) -> Value:
    if fn in UNARY and number.cls is int:
        return t.evaluate(fn, [number.size(t)], {})
    if fn not in UNARY or number.cls is not float:
        number.needed()
    return _computed(t, fn, [number.tensor], number, number.most)


def extreme(t: Tracer, wanted: Callable[..., Any], best: Value, other: Value) -> Value:
    """Returns `other if wanted(other, best) else best`."""
    if is_integer(best) and is_integer(other):
        fn = min if wanted is operator.lt else max
        return t.evaluate(fn, [as_size(t, best), as_size(t, other)], {})
    most = max(_most(t, best), _most(t, other))
    made = _computed(
        t, partial(_chosen, wanted), _floats(best, other), _number_of(best, other), most
    )
    if wanted is operator.gt:
        known = [v.real for v in (best, other) if _is_known(v)]  # type: ignore[attr-defined]
        made.least = max(0.0, *known) if known else 0.0
    return made


def _chosen(wanted: Callable[..., Any], best: Any, other: Any) -> Any:
    return torch.where(wanted(other, best), other, best)


def _computed(
    t: Tracer, fn: Callable[..., Any], operands: list[Value], number: NumberValue, most: float
) -> NumberValue:
    n_ops = t.recorder.n_ops
    made: Any = t.torch_call(fn, operands, {})
    t.recorder.n_ops = n_ops  # a graph is not worth running for this op alone
    return NumberValue(made, float, number.site, most)


def _number_of(left: Value, right: Value) -> NumberValue:
    number = left if isinstance(left, NumberValue) else right
    assert isinstance(number, NumberValue)
    return number


def _is_known(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.is_specialized


def _floats(left: Value, right: Value) -> list[Value]:
    """Returns the operands if PyTorch computes with them like Python: floats from tensors, other floats, and
    ints that are exact as floats."""
    number = _number_of(left, right)
    operands: list[Value] = []
    for value in (left, right):
        if isinstance(value, NumberValue):
            if value.cls is not float or value.tensor.fake.device != number.tensor.fake.device:
                number.needed()
            operands.append(value.tensor)
            continue
        if not isinstance(value, ConstValue) or value.type() not in (int, float):
            number.needed()
        if value.type() is int and not (_is_known(value) and abs(value.real) < 1 << 53):
            number.needed()
        operands.append(value)
    return operands


def _most(t: Tracer, value: Value) -> float:
    """Returns an upper bound of the absolute value; a guard checks whether a dynamic number is in [-1, 1]."""
    if isinstance(value, NumberValue):
        return value.most
    if _is_known(value):
        return abs(value.real)  # type: ignore[attr-defined, no-any-return]
    limits = ((operator.le, ConstValue(1.0)), (operator.ge, ConstValue(-1.0)))
    return 1.0 if all(outcome(t, fn, [value, limit]) for fn, limit in limits) else math.inf


def _least(value: Value) -> float:
    """Returns a lower bound of the absolute value."""
    if isinstance(value, NumberValue):
        return value.least
    return abs(value.real) if _is_known(value) else 0.0  # type: ignore[attr-defined]


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
