"""Recorded functions with a number argument that is an element of a tensor of the graph (`x.add_(update,
alpha=-norm.item())`).

The tensor replaces the number where PyTorch computes the same with both: products and sums of floats of 32
and 64 bits. Everywhere else the number has to be known."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.container import ListValue
from frameloom.capture.values.numbers.number import NumberValue, as_size
from frameloom.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Tensor = torch.Tensor
PRODUCTS = frozenset({operator.mul, torch.mul, Tensor.mul, torch.multiply, Tensor.multiply})
PRODUCTS_IN_PLACE = frozenset({operator.imul, Tensor.mul_, Tensor.multiply_})
SUMS = {torch.add: torch.add, Tensor.add: torch.add, torch.sub: torch.sub, Tensor.sub: torch.sub, operator.add: torch.add,
        operator.sub: torch.sub, Tensor.add_: Tensor.add_, Tensor.sub_: Tensor.sub_, operator.iadd: Tensor.add_, operator.isub: Tensor.sub_}  # fmt: skip
DTYPES = (torch.float32, torch.float64)
IN_PLACE = frozenset(
    {
        operator.imul,
        operator.iadd,
        operator.isub,
        Tensor.mul_,
        Tensor.multiply_,
        Tensor.add_,
        Tensor.sub_,
    }
)


def has_number(t: Tracer, values: Iterable[Value]) -> bool:
    """Whether an argument is such a number, or a list with one."""
    for value in map(t.look, values):
        if isinstance(value, NumberValue):
            return True
        if isinstance(value, ListValue) and any(
            isinstance(n := t.look(item), NumberValue) and n.cls is not int for item in value.items
        ):
            return True
    return False


def with_number(t: Tracer, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = [t.look(a) for a in args]
    named = {name: t.look(a) for name, a in kwargs.items()}
    if fn is torch._foreach_mul_ and len(given) == 2 and not named:
        return _of_lists(t, given)
    numbers = [v for v in (*given, *named.values()) if isinstance(v, NumberValue)]
    if numbers and all(v.cls is int for v in numbers):
        sized = {name: as_size(t, v) for name, v in named.items()}
        return t.torch_call(fn, [as_size(t, v) for v in given], sized)
    if len(given) != 2 or len(numbers) != 1 or not any(isinstance(v, TensorValue) for v in given):
        _needed(t, [*given, *named.values()])
    left, right = given
    if fn in IN_PLACE and not isinstance(left, TensorValue):
        numbers[0].needed()
    if not named and fn in PRODUCTS:
        return t.torch_call(torch.mul, [_tensor(t, v, given) for v in given], {})
    if not named and fn in PRODUCTS_IN_PLACE:
        return t.torch_call(Tensor.mul_, [left, _tensor(t, right, given)], {})
    if fn in SUMS and not named:
        return t.torch_call(SUMS[fn], [_tensor(t, v, given) for v in given], {})
    tensors = [v for v in given if isinstance(v, TensorValue)]
    if fn in SUMS and list(named) == ["alpha"] and len(tensors) == 2 and _have_same_dtype(tensors):
        scaled = t.torch_call(torch.mul, [right, _tensor(t, named["alpha"], tensors)], {})
        return t.torch_call(SUMS[fn], [left, scaled], {})
    numbers[0].needed()


def _of_lists(t: Tracer, given: list[Value]) -> Value:
    """Records a product of a list of tensors with a list of numbers."""
    lists = [list(map(t.look, v.items)) if isinstance(v, ListValue) else [] for v in given]
    tensors, numbers = lists
    kinds = all(isinstance(v, TensorValue) for v in tensors) and all(
        isinstance(v, NumberValue) for v in numbers
    )
    if not kinds or len(tensors) != len(numbers):
        _needed(t, given)
    factors = [_tensor(t, b, [a]) for a, b in zip(tensors, numbers, strict=True)]
    made = t.torch_call(torch._foreach_mul_, [given[0], ListValue(factors)], {})
    return given[0] if isinstance(made, ListValue) else made


def _needed(t: Tracer, values: Iterable[Value]) -> Any:
    for value in map(t.look, values):
        parts = value.items if isinstance(value, ListValue) else [value]
        for part in map(t.look, parts):
            if isinstance(part, NumberValue):
                part.needed()
    raise AssertionError("no number is given")


def _have_same_dtype(tensors: list[TensorValue]) -> bool:
    return len({(v.fake.dtype, v.fake.device) for v in tensors}) == 1


def _tensor(t: Tracer, value: Value, beside: Iterable[Value]) -> Value:
    """Returns the number as a tensor that does not change the result."""
    if not isinstance(value, NumberValue):
        return value
    other = next(v for v in beside if isinstance(v, TensorValue)).fake
    if (
        value.cls is not float
        or other.dtype not in DTYPES
        or other.device != value.tensor.fake.device
    ):
        value.needed()
    if other.dtype is torch.float32 and not value.fits:
        value.needed()
    return t.torch_call(partial(_converted, other.dtype), [value.tensor], {})


def _converted(dtype: torch.dtype, number: torch.Tensor) -> torch.Tensor:
    return number.to(dtype)
