"""Ops of CUDA tensors that are recorded in their own way, captured where there is no GPU."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import frameloom
from frameloom.capture import _capture
from frameloom.capture.symbolic.dynamic_policy import Pattern
from frameloom.capture.symbolic.number_inputs import with_sizes
from frameloom.errors import Break
from frameloom.ir.program import Extern
from tests.capture.cuda.test_cuda_graphs import (
    CUDA,
    Lowering,
    _tensors_seem_to_be_on_a_gpu,
    lowered,
)

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


@pytest.mark.parametrize("norm", [F.rms_norm, torch.rms_norm])
def test_a_norm_whose_shape_is_a_size_that_varies(norm, monkeypatch):
    """PyTorch's C++ code takes the bits of the size for a number."""
    fake = Pattern.fake

    def on_gpu(pattern, shape_env, tensor, origin):
        like = SimpleNamespace(
            shape=tensor.shape, stride=tensor.stride, dtype=tensor.dtype, device=CUDA,
            requires_grad=False,
        )  # fmt: skip
        return fake(pattern, shape_env, like, origin)

    monkeypatch.setattr(Pattern, "fake", on_gpu)
    x, y = torch.randn(4, 6), torch.randn(5, 6)
    frameloom.mark_dynamic(x, 0)
    frameloom.mark_dynamic(y, [0, 1])
    runner = Lowering()
    with torch.no_grad(), contextlib.suppress(RuntimeError):  # what only a GPU can do
        _capture.JitFunction(lambda x, y: norm(x, y.shape[-1:]), runner)(x, y)
    (graph,) = runner.graphs
    numbers = [a for n in graph.graph.nodes for a in tree_leaves(n.args) if type(a) is int]
    assert min(numbers, default=0) > -9  # those of a PyTorch without CUDA are of other ops


def test_a_size_that_was_read_as_a_number():
    bits = -6917529026871222432
    with pytest.raises(Break):
        with_sizes([3, bits])
    assert with_sizes([3, -1, -(1 << 63)]) == [3, -1, -(1 << 63)]


REFUSED = {
    "std": (lambda i: i.std(), torch.ones(3, dtype=torch.int64)),
    "softmax": (lambda i: i.softmax(0), torch.ones(3, dtype=torch.int64)),
    "max": (lambda i: i[:0].max(0)[0], torch.ones(2, 3)),
    "mode": (lambda i: i[:0].mode(0)[0], torch.ones(2, 3)),
    "index_copy": (lambda i: i.float().index_copy(0, i, i.float()), torch.zeros(1, dtype=torch.int32)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_refuses_behind_numbers_that_it_draws(name):
    """No such call starts anew: what is changed before stays so."""
    op, given = REFUSED[name]
    runner = Lowering()
    with torch.no_grad(), contextlib.suppress(RuntimeError, IndexError):
        _capture.JitFunction(lambda x, i: (x.uniform_(), op(i))[1], runner)(torch.ones(3), given)
    assert runner.breaks
