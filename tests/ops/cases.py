"""What is tried: ops, dtypes, forms, samples.  A `Case` is a function of (input, args, kwargs) and those three."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

from tests.ops.transformed import as_arrays, numpy_function, stacked, under_vmap

# PyTorch's own test helpers forbid setting flags of its backends in the whole process; other tests do that.
torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True
# They look for the unittest method that asks for samples on the stack, which takes ten times as long as the samples; there is none.
for _module in (common_utils, core):
    _module.extract_test_fn = lambda: None

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
FORMS = (
    "function",
    "strided",
    "empty",
    "method",
    "inplace",
    "out",
    "vmap",
    "numpy",
    "error",
    "compiled",
)
# Eager itself writes past the end of an out= that is laid out otherwise.
ONLY_ALIKE = frozenset(["tril", "triu", "lu_unpack", "linalg.lu"])
Arguments = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """`call(input, args, kwargs)` is what is compared; `wide` gives the same arguments in float64 where that can be said."""

    number: int
    call: Callable[..., Any]
    arguments: Arguments

    def fresh(self) -> Arguments:
        """Copies that have the strides and share memory as the originals do."""
        memo: dict[int, Any] = {}
        for tensor in tensors_in(self.arguments):
            if tensor.layout is not torch.strided:
                memo[id(tensor)] = tensor.clone()
        return copy.deepcopy(self.arguments, memo)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def all_ops() -> dict[str, Any]:
    """The ops that exist on the CPU, by name and variant."""
    return {op.full_name: op for op in op_db if op.supported_dtypes("cpu")}


def units(op: Any) -> Iterator[tuple[str, str]]:
    """(dtype, form) for which the op has cases."""
    supported = op.supported_dtypes("cpu")
    for name, dtype in DTYPES.items():
        if dtype in supported:
            yield name, "function"
            yield name, "strided"
            yield name, "empty"
            if op.method_variant is not None and op.method_variant is not op.op:
                yield name, "method"
            if op.inplace_variant is not None:
                yield name, "inplace"
            if op.supports_out:
                yield name, "out"
            yield name, "vmap"
            if numpy_function(op) is not None:
                yield name, "numpy"
    if op.error_inputs_func is not None:
        yield "any", "error"
    yield "any", "compiled"


def cases(op: Any, dtype: str, form: str) -> Iterator[Case]:
    """The cases of one unit, in an order that is the same in every run."""
    torch.manual_seed(0)
    if form == "error":
        for number, error in enumerate(op.error_inputs("cpu")):
            sample = error.sample_input
            yield Case(number, of_function(op.op), (sample.input, sample.args, sample.kwargs))
        return
    function = {"method": op.method_variant, "inplace": op.inplace_variant}.get(form, op.op)
    call = of_function(numpy_function(op) if form == "numpy" else function)
    if form == "vmap":
        call = under_vmap(_program_of(function))
    number = 0
    for sample in op.sample_inputs("cpu", DTYPES[dtype], requires_grad=False):
        if form == "inplace" and sample.broadcasts_input:
            continue
        if form == "strided":
            sample = sample.noncontiguous()
        given = (sample.input, tuple(sample.args), dict(sample.kwargs))
        if (change := CHANGES.get(form)) is not None and (given := change(given)) is None:
            continue
        if form != "out":
            yield Case(number, call, given)
            number += 1
            continue
        for out in outs(function, given)[: 1 if op.name in ONLY_ALIKE else 2]:
            yield Case(number, call, (*given[:2], {**given[2], "out": out}))
            number += 1


def emptied(given: Arguments) -> Arguments | None:
    """The same arguments where one size, that of the input's first dimension, is 0 wherever it leads a tensor; None if there is no such."""
    first = next(tensors_in(given), None)
    if first is None or not first.dim() or not first.numel() or first.layout is not torch.strided:
        return None

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            leads = value.layout is torch.strided and value.shape[:1] == first.shape[:1]
            return value.narrow(0, 0, 0).clone() if leads else value
        if isinstance(value, dict):
            return {key: convert(v) for key, v in value.items()}
        return type(value)(map(convert, value)) if type(value) in (list, tuple) else value

    found: Arguments = convert(given)
    return found


CHANGES: dict[str, Callable[[Arguments], Arguments | None]] = {
    "empty": emptied, "vmap": stacked, "numpy": as_arrays
}  # fmt: skip


def outs(function: Any, given: Arguments) -> list[Any]:
    """What can be given as out=: tensors like the results, and such whose elements lie the other way round."""
    input, args, kwargs = copy.deepcopy(given)
    try:
        result = function(input, *args, **kwargs)
    except Exception:
        return []
    if not isinstance(result, torch.Tensor | tuple | list):
        return []
    tensors = [result] if isinstance(result, torch.Tensor) else list(result)
    if not all(isinstance(t, torch.Tensor) and t.layout is torch.strided for t in tensors):
        return []
    alike = [torch.zeros_like(t) for t in tensors]
    turned = [
        torch.zeros(t.shape[::-1], dtype=t.dtype).permute(tuple(range(t.dim())[::-1]))
        for t in tensors
    ]
    if isinstance(result, torch.Tensor):
        return [alike[0], turned[0]]
    return [tuple(alike), tuple(turned)]


def of_function(function: Any) -> Callable[..., Any]:
    """A program that calls it.  Helpers which the op database is written with are programs too, and not PyTorch's own code."""
    function = _program_of(function)

    def call(input: Any, args: Any, kwargs: Any) -> Any:
        return function(input, *args, **kwargs)

    return call


def _program_of(function: Any) -> Any:
    if isinstance(function, FunctionType) and "torch.testing" in function.__globals__["__name__"]:
        return _as_program(function)
    return function


def _as_program(function: FunctionType) -> FunctionType:
    """Without the seed that some of them set: `Run` sets one."""
    code, scope = function.__code__, {**function.__globals__, "wrapper_set_seed": _plainly}
    made = FunctionType(code, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__ = __name__
    return made


def _plainly(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def in_precision(arguments: Arguments, real: torch.dtype) -> Arguments:
    """Copies of the arguments in which what is a fraction is of the dtype `real`, or the complex one of its parts."""

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                return value.clone()
            return value.to(_in_precision(value.dtype, real), copy=True)
        if isinstance(value, np.ndarray):
            return convert(torch.from_numpy(value)).numpy()
        if isinstance(value, torch.dtype):
            return _in_precision(value, real)
        if isinstance(value, dict):
            return {key: convert(v) for key, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(convert(v) for v in value)
        return copy.deepcopy(value)

    found: Arguments = convert(arguments)
    return found


def _in_precision(dtype: torch.dtype, real: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return real.to_complex()
    return real if dtype.is_floating_point else dtype
