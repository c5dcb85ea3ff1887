"""Which convolutions on a GPU get channels-last tensors, where there is no GPU."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from frameloom.ir.dtype import DType
from frameloom.ir.lower.layout import channels_last
from frameloom.ir.program import Extern, Kernel, Kind
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu, lowered

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture


@pytest.fixture(autouse=True)
def _cudnn(monkeypatch):
    monkeypatch.setattr(channels_last, "_cudnn", lambda: True)


def convolutions(program):
    calls = [s for s in program.steps if isinstance(s, Extern)]
    return [s for s in calls if s.target == channels_last.CONVOLUTION]


def relaid(program):
    return [
        channels_last.is_channels_last(s.args[0].shape, s.args[0].strides)
        for s in convolutions(program)
    ]


def layers(dtype, width=32):
    several = [nn.Conv2d(width, width, 3, padding=1) for _ in range(3)]
    return nn.Sequential(*several).to(dtype)


@pytest.mark.parametrize(
    "dtype, last", [(torch.bfloat16, True), (torch.float16, True), (torch.float64, False)]
)
def test_the_types_that_cudnn_converts(dtype, last):
    module = layers(dtype)
    program, _ = lowered(lambda x: module(x), torch.zeros(8, 32, 64, 64, dtype=dtype))
    assert relaid(program) == [last] * 3


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32(allowed, monkeypatch):
    monkeypatch.setattr(channels_last, "_tf32", lambda: allowed)
    module = layers(torch.float32)
    program, _ = lowered(lambda x: module(x), torch.zeros(8, 32, 64, 64))
    assert relaid(program) == [allowed] * 3


def test_not_for_one_small_convolution():
    x, w = torch.zeros(1, 8, 16, 16).half(), torch.zeros(8, 8, 3, 3).half()
    assert relaid(lowered(lambda x, w: F.conv2d(x, w), x, w)[0]) == [False]


def test_not_for_weights_larger_than_everything_else():
    x, w = torch.zeros(1, 1024, 9, 9).half(), torch.zeros(1024, 1024, 3, 3).half()
    assert relaid(lowered(lambda x, w: F.conv2d(x, w), x, w)[0]) == [False]


def test_the_program_sees_its_own_strides():
    module = layers(torch.half)
    x = torch.zeros(8, 32, 64, 64).half()
    program, steps = lowered(lambda x: (module(x), module[0](x).narrow(1, 2, 30).relu()), x)
    assert relaid(program) == [True] * 4
    assert program.outputs[0].strides == x.stride()
    for call in convolutions(program):
        assert call.args[2] is None  # the bias is added by our kernels
    written = [s for s in program.steps if isinstance(s, Kernel) for s in s.stores]
    assert {s.buffer.strides for s in written if s.buffer.kind is Kind.OUTPUT} == {
        (131072, 4096, 64, 1), (122880, 4096, 64, 1),
    }  # fmt: skip


@pytest.mark.parametrize("width, products", [(32, 2), (36, 0)])
def test_single_pixels_are_matrix_products(width, products):
    module = nn.Sequential(nn.Conv2d(width, width, 1), nn.ReLU(), nn.Conv2d(width, width, 1)).half()
    x = torch.zeros(8, width, 64, 64).half()
    _, steps = lowered(lambda x: module(x) + 1, x)
    assert steps.count(channels_last.PRODUCT) == products


def test_indices_of_pooling_that_nobody_wants_are_not_written():
    module = layers(torch.half)
    x = torch.zeros(8, 32, 64, 64).half()
    program, steps = lowered(lambda x: F.max_pool2d(module(x).relu(), 3, 2, 1), x)
    assert not any("pool" in s for s in steps)
    stores = [s for k in program.steps if isinstance(k, Kernel) for s in k.stores]
    assert DType.I64 not in {s.buffer.dtype for s in stores}


def test_weights_are_converted_together():
    """One kernel for up to eight of one size; one for the input."""
    module = nn.Sequential(nn.Conv2d(3, 64, 3), *(nn.Conv2d(64, 64, 3) for _ in range(9))).half()
    program, _ = lowered(lambda x: module(x), torch.zeros(8, 3, 64, 64).half())
    kernels = [s for s in program.steps if isinstance(s, Kernel) and "relayout" in s.name]
    assert sorted(len(k.stores) for k in kernels) == [1, 1, 1, 8]
