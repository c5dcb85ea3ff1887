"""Quantised and back as loops: to the bit."""

import math

import pytest
import torch

from frameloom.ir.program import Extern
from tests.helpers import check

ODD = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 0.05])
X = torch.cat([torch.randn(400) * 3, (torch.randn(400) * 9).round() * 0.05, ODD]).view(-1, 8)


def is_a_loop(fn, *args):
    report = check(fn, *args, graphs=1, breaks=0, rtol=0, atol=0)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("least, most", [(-128, 127), (0, 255), (-8, 7)])
def test_fake_quantized(least, most):
    for x in (X, X.bfloat16(), X.half(), X.double()):
        assert is_a_loop(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, least, most), x)
        for zero in (torch.randint(0, 7, (8,), dtype=torch.int32), torch.rand(8) * 6):
            assert is_a_loop(
                lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, least, most),
                x, torch.full((8,), 0.037), zero,
            )  # fmt: skip


def test_a_zero_point_of_floats_is_added_without_rounding_before():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200_000, 8, generator=generator) * 3
    for _ in range(4):
        scale, zero = torch.full((8,), 0.037), torch.rand(8, generator=generator) * 6
        assert is_a_loop(
            lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -128, 127),
            x,
            scale,
            zero,
        )


def test_gradients_are_those_in_range():
    def f(x):
        torch.fake_quantize_per_tensor_affine(x * 2, 0.1, 0, -8, 7).sum().backward()
        return x.grad

    check(f, torch.randn(4, 5, requires_grad=True))
