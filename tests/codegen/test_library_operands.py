"""What kernels write for library calls, under Triton's interpreter: masks of attention, and operands in aligned rows."""

import math

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.program import Extern, Kernel
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu, lowered
from tests.codegen import triton_kernels

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture


def seen(tensors, view):
    """A view of a buffer; what is behind its end may be anything."""
    data = tensors[view.buffer.name]
    room = 1 + sum((e - 1) * s for e, s in zip(view.shape, view.strides, strict=True))
    data = torch.cat([data, data.new_full((max(room - data.numel(), 0),), math.nan)])
    return data.as_strided(view.shape, view.strides, view.offset)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_of_attention(dtype):
    def f(q, k, v, sees):
        return F.softmax((q @ k.mT).masked_fill(sees == 0, float("-inf")), -1) @ v

    q = torch.randn(2, 4, 53, 32, dtype=dtype)
    sees = (torch.rand(2, 1, 53, 53) > 0.5).float()
    sees[1, 0, 7] = 0
    program, _ = lowered(f, q, q.clone(), q.clone(), sees)
    (mask,) = [s.args[3] for s in program.steps if isinstance(s, Extern)]
    tensors = {b.name: sees.flatten() for b in program.inputs if b.shape == sees.shape}
    triton_kernels.run([s for s in program.steps if isinstance(s, Kernel)], tensors)
    wanted = torch.zeros(2, 1, 53, 53).masked_fill(sees == 0, -math.inf)
    wanted[1, 0, 7] = math.nan
    torch.testing.assert_close(seen(tensors, mask).float(), wanted, equal_nan=True)


@pytest.mark.parametrize("bias", [False, True])
def test_products_in_aligned_rows(bias):
    x, w = torch.randn(1040, 1024).bfloat16(), torch.randn(1011, 1024).bfloat16()
    given = (x, w, torch.randn(1011).bfloat16()) if bias else (x, w)
    program, _ = lowered(lambda x, w, *b: F.linear(x, w, *b), *given)
    by_shape = {tuple(t.shape): t for t in given}
    tensors = {b.name: by_shape[b.shape].flatten() for b in program.inputs}
    for step in program.steps:
        if isinstance(step, Kernel):
            triton_kernels.run([step], tensors)
            continue
        (result,) = step.results
        made = torch.empty(result.shape[0] * result.strides[0], dtype=torch.bfloat16)
        product = torch.addmm if bias else torch.mm
        value = product(*(seen(tensors, v) for v in step.args[: 2 + bias]))
        made.as_strided(result.shape, result.strides).copy_(value)
        tensors[result.name] = made
    found = tensors[program.outputs[0].buffer.name].view(1040, 1011)
    torch.testing.assert_close(found, F.linear(*given))
