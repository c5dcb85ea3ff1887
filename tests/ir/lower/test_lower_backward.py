"""Lowering of derivatives against eager's own ops, by the interpreter."""

import pytest
import torch

from tests.ir.helpers import check

aten = torch.ops.aten
LOOSE = (2e-5, 2e-5)
FLOATS = (torch.float32, torch.float64, torch.bfloat16)


def tolerance(dtype):
    return (2e-2, 2e-2) if dtype.itemsize == 2 else LOOSE


def given(dtype, *shape):
    return (torch.randn(shape) * 2).to(dtype)


ACTIVATIONS = {
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.5),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1.0, 1.5),
    "gelu": lambda g, x: aten.gelu_backward(g, x),
    "gelu_tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": lambda g, x: aten.silu_backward(g, x),
    "mish": lambda g, x: aten.mish_backward(g, x),
    "hardsigmoid": lambda g, x: aten.hardsigmoid_backward(g, x),
    "hardswish": lambda g, x: aten.hardswish_backward(g, x),
    "elu": lambda g, x: aten.elu_backward(g, 1.5, 1.1, 0.7, False, x),
    "elu_of_result": lambda g, x: aten.elu_backward(g, 1.5, 1.1, 0.7, True, x),
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1.5, 2.0),
    "sigmoid": lambda g, x: aten.sigmoid_backward(g, torch.sigmoid(x)),
    "tanh": lambda g, x: aten.tanh_backward(g, torch.tanh(x)),
    "logit": lambda g, x: (aten.logit_backward(g, x / 4), aten.logit_backward(g, x / 4, 0.1)),
    "prelu": lambda g, x: aten._prelu_kernel_backward(g, x, torch.full_like(x, 0.3)),
    "glu": lambda g, x: (aten.glu_backward(g[:, :32], x, 1), aten.glu_backward(g[:32], x, 0)),
    "dropout": lambda g, x: aten.native_dropout_backward(g, x > 0, 1.25),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    for dtype in FLOATS:
        # Long enough for whole vectors: eager's rests treat NaN in another way.
        g, x = given(dtype, 64, 64), given(dtype, 64, 64)
        x[0, 0], x[0, 1], x[1, 0] = float("nan"), float("inf"), -float("inf")
        x[2, 2] = 0.5
        check(ACTIVATIONS[name], g, x, tolerance=tolerance(dtype))


def test_log_sigmoid():
    for dtype in FLOATS:
        g, x = given(dtype, 4, 6), given(dtype, 4, 6)

        def backward(g, x):
            return aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1])

        check(backward, g, x, tolerance=tolerance(dtype))


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses(reduction):
    for dtype in (torch.float32, torch.float64):
        x, t = torch.rand(4, 6).to(dtype), torch.rand(4, 6).to(dtype)
        g = given(dtype, 4, 6) if reduction == 0 else given(dtype)
        check(lambda g, x, t: aten.mse_loss_backward(g, x, t, reduction), g, x, t, tolerance=LOOSE)
        for edge in (0.0, 0.3):
            check(
                lambda g, x, t: aten.smooth_l1_loss_backward(g, x, t, reduction, edge),
                g, x, t, tolerance=LOOSE,
            )  # fmt: skip
        check(
            lambda g, x, t: aten.huber_loss_backward(g, x, t, reduction, 0.3),
            g, x, t, tolerance=LOOSE,
        )  # fmt: skip
        check(
            lambda g, x, t: aten.binary_cross_entropy_backward(g, x, t, None, reduction),
            g, x, t, tolerance=LOOSE,
        )  # fmt: skip


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_negative_log_likelihood(reduction):
    for dtype in FLOATS:
        for weighted in (False, True):
            x, target = given(dtype, 5, 7), torch.tensor([0, 6, 2, -100, 3])
            w = torch.rand(7).to(dtype) if weighted else None
            g = given(dtype, 5) if reduction == 0 else given(dtype)

            def backward(g, x, target, w=w):
                total = aten.nll_loss_forward(x, target, w, reduction, -100)[1]
                return aten.nll_loss_backward(g, x, target, w, reduction, -100, total)

            check(backward, g, x, target, tolerance=tolerance(dtype))
    x, target = torch.randn(2, 4, 3, 5), torch.randint(0, 4, (2, 3, 5))
    g = torch.randn(2, 3, 5) if reduction == 0 else torch.randn(())

    def of_image(g, x, target):
        total = aten.nll_loss2d_forward(x, target, None, reduction, 1)[1]
        return aten.nll_loss2d_backward(g, x, target, None, reduction, 1, total)

    check(of_image, g, x, target, tolerance=LOOSE)


def test_softmax():
    for dtype in FLOATS:
        g, x = given(dtype, 3, 4, 6), given(dtype, 3, 4, 6)
        for dim in (0, -1):
            check(
                lambda g, y: aten._softmax_backward_data(g, y, dim, dtype),
                g, x.softmax(dim), tolerance=tolerance(dtype),
            )  # fmt: skip
            check(
                lambda g, y: aten._log_softmax_backward_data(g, y, dim, dtype),
                g, x.log_softmax(dim), tolerance=tolerance(dtype),
            )  # fmt: skip


MASKS = [[True] * 3, [True, False, False], [False, True, True], [False, False, True]]


@pytest.mark.parametrize("mask", MASKS)
def test_layer_norm(mask):
    for dtype in FLOATS:
        x, g, w = given(dtype, 3, 4, 6), given(dtype, 3, 4, 6), given(dtype, 6)
        for weight in (w, None):
            if weight is None and (mask[1] or not mask[0]):  # eager refuses the last mask
                continue

            def backward(g, x, weight=weight):
                _, mean, rstd = aten.native_layer_norm(x, [6], weight, weight, 1e-5)
                found = aten.native_layer_norm_backward(g, x, [6], mean, rstd, weight, weight, mask)
                return [t for t, wanted in zip(found, mask, strict=True) if wanted]

            check(backward, g, x, tolerance=tolerance(dtype))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("train", [True, False])
def test_batch_norm(mask, train):
    for dtype in (torch.float32, torch.float64):
        x, g, w = given(dtype, 3, 4, 5, 6), given(dtype, 3, 4, 5, 6), given(dtype, 4)
        mean, var = given(dtype, 4), torch.rand(4).to(dtype) + 0.5

        def backward(g, x, w, mean, var):
            kept = x.mean((0, 2, 3)), torch.rsqrt(x.var((0, 2, 3), correction=0) + 1e-5)
            running = (None, None) if train else (mean, var)
            found = aten.native_batch_norm_backward(g, x, w, *running, *kept, train, 1e-5, mask)
            return [t for t, wanted in zip(found, mask, strict=True) if wanted]

        check(backward, g, x, w, mean, var, tolerance=LOOSE)


def test_group_norm():
    for dtype in (torch.float32, torch.float64):
        x, g, w = given(dtype, 3, 4, 5, 6), given(dtype, 3, 4, 5, 6), given(dtype, 4)

        def backward(g, x, w):
            _, mean, rstd = aten.native_group_norm(x, w, w, 3, 4, 30, 2, 1e-5)
            return aten.native_group_norm_backward(g, x, mean, rstd, w, 3, 4, 30, 2, [True] * 3)

        check(backward, g, x, w, tolerance=LOOSE)


def test_max_pool():
    for size, stride, padding in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (2, 3, 0)):
        x = torch.randint(0, 4, (2, 3, 9, 8)).float()
        out, indices = aten.max_pool2d_with_indices(x, [size] * 2, [stride] * 2, [padding] * 2)

        def backward(g, x, indices, window=(size, stride, padding)):
            size, stride, padding = ([n] * 2 for n in window)
            return aten.max_pool2d_with_indices_backward(
                g, x, size, stride, padding, [1, 1], False, indices
            )

        check(backward, torch.randn_like(out), x, indices, tolerance=LOOSE)
