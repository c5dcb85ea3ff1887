"""Plans whose sizes vary, of kernels written by hand, for tests."""

import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import (
    BufferSpec,
    ExternCall,
    PlanSpec,
    SizeCall,
    SizeRef,
    ViewSpec,
)

CPU, F32, I64 = torch.device("cpu"), torch.float32, torch.int64


R = SizeRef


class Refused(BaseException):
    """What a call raises that does not begin."""


def buffer(kind, shape, strides, dtype=F32, offset=0):
    return BufferSpec(kind, shape, strides, dtype, CPU, offset)


def plan(buffers, sizes, steps, outputs, arena_bytes=0, **more):
    """`sizes` are SizeCalls as (op, *operands)."""
    inputs = sum(b.kind == "input" for b in buffers) + more.pop("number_inputs", 0)
    calls = tuple(SizeCall(op, tuple(operands)) for op, *operands in sizes)
    return _runtime.Plan(
        PlanSpec(
            inputs, tuple(buffers), tuple(steps), tuple(outputs), arena_bytes, refused=Refused, sizes=calls, **more
        )
    )  # fmt: skip


def flat(kind, size, **more):
    return buffer(kind, (size,), (1,), **more)


def view(number, shape, strides, offset=0, dtype=F32):
    return ViewSpec(number, shape, strides, offset, dtype)


def number(dtype=I64):
    return BufferSpec("number", (), (), dtype, CPU)


def extern(target, function, args, results, kwargs=None, out_form=False):
    return ExternCall(target, function, args, kwargs or {}, results, out_form)


def never(*args, **kwargs):
    raise AssertionError("called through Python")
