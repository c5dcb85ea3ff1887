"""Ops of CUDA tensors that are recorded in their own way, captured where there is no GPU."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.program import Extern
from tests.capture.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu, lowered

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture
ATTENTION = "aten.scaled_dot_product_attention.default"


def attention(*args, **kwargs):
    program, steps = lowered(lambda *a: F.scaled_dot_product_attention(*a, **kwargs), *args)
    (call,) = [s for s in program.steps if isinstance(s, Extern)]
    assert call.target == ATTENTION
    return call.results[0]


Q = torch.randn(2, 4, 16, 32)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention_is_one_call(options):
    assert attention(Q, Q, Q, **options).shape == (2, 4, 16, 32)


def test_attention_with_a_mask():
    assert attention(Q, Q, Q, torch.zeros(2, 1, 16, 16)).shape == (2, 4, 16, 32)


def test_attention_with_fewer_heads_of_keys():
    assert attention(Q, Q[:, :2], Q[:, :2], enable_gqa=True).shape == (2, 4, 16, 32)


def test_attention_is_laid_out_as_the_query():
    q = torch.randn(2, 16, 4, 32).transpose(1, 2)
    assert attention(q, q, q).strides == (2048, 32, 128, 1)


def test_attention_that_is_written_out_is_one_call_without_copies():
    def f(x, y, z):
        q, k, v = (t.view(2, 64, 4, 32).transpose(1, 2) for t in (x, y, z))
        p = F.softmax(q @ k.transpose(-2, -1) / 32**0.5, -1)
        return (p @ v).transpose(1, 2).reshape(2, 64, 128)

    x = torch.randn(2, 64, 128)
    assert lowered(f, x, x.clone(), x.clone())[1] == [ATTENTION]


def test_attention_that_is_written_out_with_the_triangular_mask():
    def f(q, k, v, i):
        i = i.new_ones(64, 64).tril() == 0
        return F.softmax((q @ k.transpose(-2, -1)).masked_fill(i, float("-inf")), -1) @ v

    q = torch.randn(2, 4, 64, 32)
    program, steps = lowered(f, q, q.clone(), q.clone(), torch.ones(1))
    assert steps == [ATTENTION]
    assert program.steps[0].args[3:6] == (None, 0.0, True)


def test_batch_norm_in_training_is_fused():
    norm = torch.nn.BatchNorm2d(4)
    _, steps = lowered(lambda x: F.relu(norm(x)), torch.randn(3, 4, 5, 5))
    assert not any("batch_norm" in s for s in steps)


@pytest.mark.parametrize("n, steps", [(32, ["cuda:0"]), (512, ["aten.mm.default"])])
def test_small_products_are_loops(n, steps):
    assert lowered(lambda x, y: x @ y, torch.randn(n, n), torch.randn(n, n))[1] == steps


def test_a_small_layer_is_one_kernel():
    layer = torch.nn.Linear(8, 4)
    assert lowered(lambda x: torch.relu(layer(x)), torch.randn(3, 8))[1] == ["cuda:0"]
