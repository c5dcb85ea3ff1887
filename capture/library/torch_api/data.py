"""Functions that return a number from tensor data: a known one, or one taken from a result of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.recording.known_elements import element_of
from frameloom.capture.speculation.assume import assume
from frameloom.capture.speculation.branch_speculation import speculated_truth
from frameloom.capture.tensors.constant_folding import known_value
from frameloom.capture.tensors.fake import is_wrapper
from frameloom.capture.values.arrays.ndarray import ArrayValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import ListValue
from frameloom.capture.values.numbers.number import NumberValue
from frameloom.capture.values.numbers.unbacked_items import MOST, may_be_sizes, sizes_in
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


# Which dtypes, the class of the number, and the dtype that represents it exactly.
NUMBERS: tuple[tuple[Callable[[torch.dtype], bool], type, torch.dtype], ...] = (
    (lambda dtype: dtype.is_complex, complex, torch.complex128),
    (lambda dtype: dtype.is_floating_point, float, torch.float64),
    (lambda dtype: dtype is torch.bool, bool, torch.int64),
    (lambda dtype: True, int, torch.int64),
)


SMALL = (torch.float32, torch.float16, torch.bfloat16)  # at most 32 bits


@knows(torch.Tensor.item, least=1, most=1)
def _item(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    broken = Break("item", "tensor.item(...)")
    tensor = t.look(args[0])
    if not isinstance(tensor, TensorValue) or tensor.fake.numel() != 1:
        raise broken
    known = known_value(tensor.fake, t.recorder)  # type: ignore[arg-type]
    if known is not None:
        return ConstValue(known.item())
    return _number_from_tensor(t, tensor, broken)


@knows(torch.Tensor.tolist, least=1, most=1)
def _tolist(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Captures `tolist` for a few ints, which may be sizes."""
    broken = Break("item", "tensor.tolist(...)")
    tensor = t.look(args[0])
    if not isinstance(tensor, TensorValue) or t.frame is None:
        raise broken
    known = known_value(tensor.fake, t.recorder)  # type: ignore[arg-type]
    if known is not None and known.numel() <= MOST:
        return t.from_python(known.tolist())
    site, shape = t.site_or(broken), tensor.fake.shape
    if not may_be_sizes(t, tensor.fake) or not shape:
        raise broken
    nested: list[Value] = list(sizes_in(t, tensor, site))
    for n in reversed(shape[1:]):
        nested = [ListValue(nested[k : k + n]) for k in range(0, len(nested), n)]
    return ListValue(nested)


@knows(torch.equal, torch.Tensor.equal, least=2, most=2)
def _equal(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if getattr(getattr(t.look(args[0]), "fake", None), "dtype", None) is torch.complex32:
        raise Break("data_dependent", "equal(...) of a dtype that it has no kernel for")
    return _compared(t, "equal", _same, args, kwargs)


@knows(torch.allclose, torch.Tensor.allclose, least=2, keywords="rtol atol equal_nan")
def _allclose(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _compared(t, "allclose", _near, args, kwargs)


def _compared(t: Tracer, name: str, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    broken = Break("data_dependent", f"{name}(...)")
    if not all(isinstance(t.look(a), TensorValue) for a in args[:2]):
        raise broken
    result = t.torch_call(fn, list(args), kwargs)
    return _number_from_tensor(t, result, broken) if isinstance(result, TensorValue) else result


def _same(input: torch.Tensor, other: torch.Tensor) -> Any:
    return (input == other).all() if input.shape == other.shape else False


def _near(input: torch.Tensor, other: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return torch.isclose(input, other, *args, **kwargs).all()


def _number_from_tensor(t: Tracer, tensor: TensorValue, broken: Break) -> Value:
    """Returns the number in a tensor of one element."""
    site, dtype = t.site, tensor.fake.dtype
    if is_wrapper(tensor.fake):
        raise broken
    if dtype is torch.uint64 or t.session.is_avoided(*site):
        truth = speculated_truth(t, tensor, True) if dtype is torch.bool else None
        if truth is None:
            raise broken
        return ConstValue(truth)
    if (element := element_of(t, tensor.fake, site)) is not None:  # type: ignore[arg-type]
        return element
    cls, wide = next((c, w) for kinds, c, w in NUMBERS if kinds(dtype))
    n_ops = t.recorder.n_ops
    copy: Any = t.torch_call(_number, [tensor, ConstValue(wide)], {})
    t.recorder.n_ops = n_ops  # a graph is not worth running for this op alone
    most = torch.finfo(torch.float32).max if dtype in SMALL else math.inf
    return NumberValue(copy, cls, site, most)


def _number(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.detach().reshape(()).to(dtype, copy=True)


def _truncated(t: Tracer, number: NumberValue) -> Value:
    """Returns the int of a float. Python raises for NaN and infinities, and its ints may be larger than 64
    bits: the graph checks that it is none of these."""
    if t.session.per_code:
        number.needed()
    n_ops = t.recorder.n_ops
    fits: Any = t.torch_call(_fits_in_64_bits, [number.tensor], {})
    assume(t, fits, True, Avoid(number.site))
    copy: Any = t.torch_call(_number, [number.tensor, ConstValue(torch.int64)], {})
    t.recorder.n_ops = n_ops
    return NumberValue(copy, int, number.site)


def _fits_in_64_bits(number: torch.Tensor) -> torch.Tensor:
    return number.abs() < 2.0**62


def _converted(convert: type, otherwise: Known) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        tensor = t.look(args[0]) if len(args) == 1 and not kwargs else None
        if isinstance(tensor, NumberValue) and tensor.cls is float and convert is int:
            return _truncated(t, tensor)
        if isinstance(tensor, ArrayValue) and not tensor.tensor(t).fake.ndim:
            tensor = tensor.tensor(t)
        if not isinstance(tensor, TensorValue) or tensor.fake.numel() != 1:
            return otherwise(t, args, kwargs)
        known = known_value(tensor.fake, t.recorder)  # type: ignore[arg-type]
        if known is not None:
            return t.evaluate(convert, [ConstValue(known.item())], {})
        broken = Break("item", f"{convert.__name__}(tensor)")
        dtype = tensor.fake.dtype
        held = next(cls for kinds, cls, _ in NUMBERS if kinds(dtype))
        if tensor.fake.requires_grad or held is not convert:
            raise broken
        return _number_from_tensor(t, tensor, broken)

    return handler


@knows(range, least=1, most=3)
def _range(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bounds = [t.look(a) for a in args]
    known = [ConstValue(t.index(b)) if isinstance(b, TensorValue) else b for b in bounds]
    return t.evaluate(range, known, {})


for _convert in (int, float):
    FUNCTIONS[_convert] = _converted(_convert, FUNCTIONS[_convert])
