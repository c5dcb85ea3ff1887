"""Derivatives as CUDA kernels: no further from float64 than eager's, whose kernels fuse products and sums as the compiler likes."""

import pytest
import torch

import frameloom
from tests.ir.lower.test_lower_backward import ACTIVATIONS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
aten = torch.ops.aten


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape, device="cuda").to(dtype)


def close(fn, *inputs):
    """No further from float64's result than eager, or within the last bits of the largest number."""
    wide = [t.double() if t.is_floating_point() else t for t in inputs]
    exact, eager, got = fn(*wide), fn(*inputs), frameloom.jit(fn, fullgraph=True)(*inputs)
    exact, eager, got = ([r] if torch.is_tensor(r) else r for r in (exact, eager, got))
    for x, e, a in zip(exact, eager, got, strict=True):
        assert torch.equal(a.isnan(), e.isnan()) and torch.equal(a.isinf(), e.isinf())
        x, e, a = (t.nan_to_num(0, 0, 0) for t in (x, e, a))
        assert a.dtype == e.dtype and a.shape == e.shape and a.stride() == e.stride()
        least = torch.finfo(e.dtype).eps * x.abs().max()
        assert (a - x).abs().max() <= 2 * (e - x).abs().max() + 2 * least


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_elementwise(name, dtype):
    g, x = randn(64, 64, dtype=dtype), randn(64, 64, dtype=dtype) * 2
    x[0, :8] = torch.tensor([float("nan"), float("inf"), -float("inf"), 3, -3, 0.5, -0.5, 1.5])
    close(ACTIVATIONS[name], g, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms(dtype):
    x, g, w = (
        randn(512, 768, dtype=dtype) + 1,
        randn(512, 768, dtype=dtype),
        randn(768, dtype=dtype),
    )

    def layer_norm(g, x, w):
        _, mean, rstd = aten.native_layer_norm(x, [768], w, w, 1e-5)
        return aten.native_layer_norm_backward(g, x, [768], mean, rstd, w, w, [True] * 3)

    close(layer_norm, g, x, w)
    x, g, w = randn(8, 64, 28, 28, dtype=dtype) + 1, randn(8, 64, 28, 28, dtype=dtype), randn(64)

    def batch_norm(g, x, w):
        kept = x.double().mean((0, 2, 3)), torch.rsqrt(x.double().var((0, 2, 3)) + 1e-5)
        mean, rstd = (t.to(w.dtype) for t in kept)
        return aten.native_batch_norm_backward(
            g, x, w, None, None, mean, rstd, True, 1e-5, [True] * 3
        )

    close(batch_norm, g, x, w)

    def group_norm(g, x, w):
        _, mean, rstd = aten.native_group_norm(x, w, w, 8, 64, 784, 8, 1e-5)
        return aten.native_group_norm_backward(g, x, mean, rstd, w, 8, 64, 784, 8, [True] * 3)

    close(group_norm, g, x, w.to(dtype))


def test_softmax_and_loss():
    x, y = randn(256, 1000), torch.randint(0, 1000, (256,), device="cuda")
    y[3] = -100

    def softmax(g, x):
        p, q = x.softmax(-1), x.log_softmax(-1)
        return (
            aten._softmax_backward_data(g, p, -1, x.dtype),
            aten._log_softmax_backward_data(g, q, -1, x.dtype),
        )

    close(softmax, randn(256, 1000), x)
    f = frameloom.jit(torch.nn.functional.cross_entropy)
    a, b = (x.clone().requires_grad_() for _ in range(2))
    f(a, y).backward()
    torch.nn.functional.cross_entropy(b, y).backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-8)


def test_pooling():
    for dtype in (torch.float32, torch.bfloat16):
        x = randn(2, 8, 33, 31, dtype=dtype)
        out, indices = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])

        def backward(g, x, indices):
            return aten.max_pool2d_with_indices_backward(
                g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, indices
            )

        g = torch.randn_like(out)
        assert torch.equal(frameloom.jit(backward)(g, x, indices), backward(g, x, indices))
