"""Plans of kernels written by hand, for tests."""

import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import (
    BufferSpec,
    ExternCall,
    PlanSpec,
    ViewSpec,
)

aten = torch.ops.aten


CPU = torch.device("cpu")


def contiguous(shape):
    return torch.empty(shape, device="meta").stride()


def buffer(kind, shape, strides=None, dtype=torch.float32, offset=0, constant=None):
    return BufferSpec(kind, shape, strides or contiguous(shape), dtype, CPU, offset, constant)


def view(number, shape, strides=None, offset=0, dtype=torch.float32):
    return ViewSpec(number, shape, strides or contiguous(shape), offset, dtype)


def plan(inputs, buffers, steps, outputs, **more):
    """A plan whose inputs look like these tensors."""
    first = tuple(buffer("input", tuple(t.shape), t.stride(), t.dtype) for t in inputs)
    more = {"arena_bytes": 0} | more
    return _runtime.Plan(
        PlanSpec(len(inputs), first + tuple(buffers), tuple(steps), tuple(outputs), **more)
    )


def pair():
    return torch.randn(4, 8), torch.randn(4, 8)


S = (4, 8)


def extern(target, function, args, results, kwargs=None, out_form=False):
    return ExternCall(target, function, args, kwargs or {}, results, out_form)
