"""Lowering of reductions, normalisations, losses, copies and gathers against eager, by the interpreter."""

import math
import operator

import pytest
import torch
from torch import nn

from frameloom.ir import interp
from frameloom.ir.lower import lower
from frameloom.ir.passes.fuse import fuse
from tests.helpers import check as compiled
from tests.ir.helpers import assert_same, check, graph_of

F = nn.functional
LOOSE = (1e-5, 1e-5)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int32,
        torch.uint8,
        torch.bool,
    ],
)
def test_sums_and_extremes(dtype):
    x = (torch.randn(4, 5, 6) * 3).to(dtype)
    tolerance = LOOSE if dtype == torch.float32 else (2e-2, 1e-2) if dtype.itemsize == 2 else None
    for dims in (0, -1, (0, 2), (0, 1, 2)):
        for keepdim in (False, True):
            check(lambda x: x.sum(dims, keepdim=keepdim), x, tolerance=tolerance)
            check(lambda x: x.amax(dims, keepdim=keepdim), x)
            check(lambda x: x.amin(dims, keepdim=keepdim), x)
            check(lambda x: x.any(dims, keepdim=keepdim), x)
            check(
                lambda x: (
                    torch.all(x, dims, keepdim=keepdim) if isinstance(dims, int) else x.all(dims)
                ),
                x,
            )
            if dtype.is_floating_point:
                check(lambda x: x.mean(dims, keepdim=keepdim), x, tolerance=tolerance)
    check(
        lambda x: (x.sum(), x.max(), x.min(), x.any(), x.all()),
        x[:2, :2, :2],
        tolerance=tolerance,
    )
    # Of 16 bits, eager rounds at every step.
    check(lambda x: x.prod(), x[:2, :2, :2], tolerance=tolerance, lowered=dtype.itemsize != 2)
    check(lambda x: x.sum(dtype=torch.float64), x)
    if dtype != torch.bool:
        check(lambda x: (x.argmax(), x.argmin(), x.argmax(1), x.argmin(-1, keepdim=True)), x)
        check(lambda x: (*x.max(1), *x.min(0, keepdim=True)), x)
        check(lambda x: torch.aminmax(x, dim=1), x)


def test_nan_and_infinity_in_reductions():
    x = torch.tensor(
        [
            [1.0, math.nan, 3.0],
            [math.inf, -math.inf, 2.0],
            [-math.inf] * 3,
            [math.inf, 0.0, 1.0],
            [-0.0, 0.0, -0.0],
        ]
    )
    for f in [
        lambda x: x.amax(1), lambda x: x.amin(1), lambda x: x.argmax(1), lambda x: x.max(1), lambda x: x.sum(1),
        lambda x: x.softmax(1), lambda x: x.log_softmax(1), lambda x: x.logsumexp(1), lambda x: x.var(1),
        lambda x: x.norm(dim=1), lambda x: x.any(1), lambda x: x.prod(1), lambda x: F.layer_norm(x, (3,)),
    ]:  # fmt: skip
        check(f, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_moments_and_norms(dtype):
    x = torch.randn(4, 5, 6).to(dtype) + 2
    tolerance = LOOSE if dtype == torch.float32 else None
    for f in [
        lambda x: x.var(-1), lambda x: x.std(0, keepdim=True), lambda x: x.var(), lambda x: torch.var_mean(x, 1),
        lambda x: torch.std_mean(x, (0, 2), correction=0), lambda x: x.var(1, correction=5), lambda x: x.norm(),
        lambda x: torch.linalg.vector_norm(x, dim=1), lambda x: torch.linalg.vector_norm(x, 1, dim=(0, 1)),
        lambda x: torch.linalg.vector_norm(x, math.inf), lambda x: torch.linalg.vector_norm(x, -math.inf, dim=0),
        lambda x: torch.linalg.vector_norm(x, 0, dim=0), lambda x: torch.linalg.vector_norm(x, 3, dim=2, keepdim=True),
        lambda x: x.norm(p=2, dim=1), lambda x: F.normalize(x, dim=-1),
    ]:  # fmt: skip
        check(f, x, tolerance=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_family(dtype):
    x = torch.randn(3, 4, 8).to(dtype) * 5
    for dim in (-1, 0, 1):
        check(lambda x: x.softmax(dim), x)
        check(
            lambda x: x.log_softmax(dim),
            x,
            tolerance=LOOSE if dtype == torch.float32 else (2e-2, 1e-2),
        )
        check(
            lambda x: x.logsumexp(dim, keepdim=True),
            x,
            tolerance=None if dtype == torch.float32 else (2e-2, 1e-2),
        )
    check(lambda x: x.transpose(0, 2).softmax(-1), x)
    check(lambda x: F.softmax(x, -1, dtype=torch.float32), x)
    check(lambda x: x[0, 0, 0].softmax(0), x)


def test_one_softmax_is_one_store():
    program = check(lambda x: x.softmax(-1), torch.randn(3, 8))
    assert len(program.steps) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normalisations(dtype):
    x = torch.randn(2, 6, 4, 5).to(dtype)
    w, b = torch.randn(5).to(dtype), torch.randn(5).to(dtype)
    tolerance = (2e-5, 2e-5) if dtype == torch.float32 else (2e-2, 2e-2)
    check(lambda x, w, b: F.layer_norm(x, (5,), w, b), x, w, b, tolerance=tolerance)
    check(lambda x: F.layer_norm(x, (4, 5)), x, tolerance=tolerance)
    for eps in (1e-6, None):
        graph = torch.fx.Graph()
        places = graph.placeholder("x"), graph.placeholder("w")
        call = graph.call_function(
            torch.ops.aten._fused_rms_norm.default, (places[0], [5], places[1], eps)
        )
        graph.output((graph.call_function(operator.getitem, (call, 0)),))
        for place, t in zip(places, (x, w), strict=True):
            place.meta["val"] = t
        call.meta["val"] = (x, x[..., :1].float().contiguous())
        program = lower(graph, torch.nn.Module())
        assert_same(interp.run(program, [x, w]), [F.rms_norm(x, (5,), w, eps)], tolerance)
    cw, cb = torch.randn(6).to(dtype), torch.randn(6).to(dtype)
    check(lambda x, w, b: F.group_norm(x, 3, w, b), x, cw, cb, tolerance=tolerance)
    check(lambda x: F.instance_norm(x), x, tolerance=tolerance, lowered=False)
    mean, var = torch.randn(6), torch.rand(6) + 0.5
    check(
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        x.float(),
        mean,
        var,
        cw.float(),
        cb.float(),
        tolerance=tolerance,
    )
    check(lambda x: F.batch_norm(x, None, None, training=True), x.float(), tolerance=tolerance)


def test_batch_norm_in_training():
    x, w, b = torch.randn(4, 3, 5), torch.randn(3), torch.randn(3)

    def f(x, w, b, m, v):
        return torch.ops.aten._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5)

    check(f, x, w, b, torch.randn(3), torch.rand(3), tolerance=LOOSE)
    check(f, x[:, :, :1].contiguous(), w, b, torch.randn(3), torch.rand(3), tolerance=LOOSE)


def test_losses():
    x, t = torch.randn(8, 5), torch.randint(0, 5, (8,))
    t[2] = -100
    w = torch.rand(5)
    for reduction in ("mean", "sum", "none"):
        check(lambda x, t: F.cross_entropy(x, t, reduction=reduction), x, t, tolerance=LOOSE)
        check(
            lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction), x, t, w, tolerance=LOOSE
        )
        check(
            lambda x, t: F.nll_loss(x, t, ignore_index=3, reduction=reduction),
            x,
            t.clamp(min=0),
            tolerance=LOOSE,
        )
        y = torch.randn(8, 5)
        check(lambda x, y: F.mse_loss(x, y, reduction=reduction), x, y, tolerance=LOOSE)
        check(lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction), x, y, tolerance=LOOSE)
        check(lambda x, y: F.huber_loss(x, y, reduction=reduction), x, y, tolerance=LOOSE)
        check(lambda x, y: F.l1_loss(x, y, reduction=reduction), x, y, tolerance=LOOSE)
        check(
            lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=reduction),
            x,
            y,
            tolerance=LOOSE,
        )
        check(
            lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=reduction),
            x,
            y,
            tolerance=LOOSE,
        )
    check(F.cross_entropy, torch.randn(2, 5, 3), torch.randint(0, 5, (2, 3)), tolerance=LOOSE)
    check(F.cross_entropy, torch.randn(5), torch.tensor(3), tolerance=LOOSE)


def test_empty_reductions():
    x = torch.randn(3, 0)
    check(
        lambda x: (
            x.sum(1),
            x.prod(1),
            x.mean(1),
            x.any(1),
            x.all(1),
            x.sum(),
            x.var(1),
            x.logsumexp(1),
        ),
        x,
    )
    check(lambda x: (x.sum(0), x.softmax(1), x + 1), x)


def test_copies():
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    for f in [
        lambda x, y: torch.cat([x, y, x], 1), lambda x, y: torch.cat([x[:, 0], y.view(-1)]),
        lambda x, y: torch.stack([x, x * 2, x.clone()], 1), lambda x, y: torch.cat([x, y.to(torch.float64)], -1),
        lambda x, y: F.pad(x, (1, 2, 0, 3), value=7.0), lambda x, y: F.pad(x, (-1, 2)), lambda x, y: x.flip(0, 1),
        lambda x, y: x.roll((1, -2), (0, 1)), lambda x, y: y.roll(1, 1), lambda x, y: y.repeat(2, 1, 3),
        lambda x, y: x.tril(), lambda x, y: x.triu(1), lambda x, y: x.t().contiguous(), lambda x, y: x.to(torch.int32),
        lambda x, y: torch.cat([x[:, :0], y], 1), lambda x, y: torch.cat([torch.empty(0), y], 0), lambda x, y: x.half(),
        lambda x, y: torch.slice_scatter(x, y, 1, 0, 6, 2), lambda x, y: torch.select_scatter(x, y[:, 0], 1, -1),
        lambda x, y: torch.slice_scatter(x, y, 1, 3), lambda x, y: torch.diagonal_scatter(x, y[:, 0]),
        lambda x, y: torch.diagonal_scatter(x, y[:3, 0], -1), lambda x, y: torch.diagonal_scatter(x, y[:, 0], 2),
        lambda x, y: x.expand(2, 4, 6).reshape(8, 6), lambda x, y: x.clone(memory_format=torch.contiguous_format),
    ]:  # fmt: skip
        check(f, x, y)
    check(lambda x: x[:, 1].copy_(x[:, 0]) + x[:, 1], x, functional=True)
    image = torch.randn(2, 4, 6, 6)
    for f in [
        lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"),
        lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x, 3), lambda x: x.nansum(1), torch.count_nonzero,
        lambda x: F.pad(F.pad(x, (1, 1, 1, 1), mode="replicate").exp(), (1, 2, 2, 1), mode="reflect"),
    ]:  # fmt: skip
        check(f, image, passes=[fuse])
    check(lambda x: x.clone(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))


def test_creation():
    x = torch.randn(3, 3)
    for f in [
        lambda x: x + torch.arange(3), lambda x: torch.arange(5, 0, -2), lambda x: torch.arange(0.5, 3, 0.25),
        lambda x: torch.full((2, 2), 3), lambda x: torch.zeros(3, dtype=torch.bool), lambda x: torch.ones_like(x) * x,
        lambda x: torch.full_like(x, 2.5, dtype=torch.float16), lambda x: x.new_zeros(2), lambda x: torch.eye(3, 4),
        lambda x: torch.scalar_tensor(3.0), lambda x: torch.full((0,), 1),
        lambda x: torch.ones(3, 3).tril() * x,
    ]:  # fmt: skip
        check(f, x)


def test_gathers():
    w, i = torch.randn(10, 4), torch.randint(0, 10, (3, 5))
    x = torch.randn(5, 6, 7)
    a, b = torch.tensor([0, -1, 2, 4]), torch.tensor([[1], [-6], [5]])
    check(lambda i, w: F.embedding(i, w), i, w)
    check(lambda i, w: F.embedding(i.int(), w) * 2, i, w)
    check(lambda x, i: x.index_select(1, i), x, torch.tensor([5, 0, 0]))
    check(lambda x, i: x.gather(1, i), x, torch.randint(0, 6, (5, 2, 3)))
    check(lambda x, a: x[a], x, a)
    check(lambda x, a: x[:, a], x, a)
    check(lambda x, a, b: x[a, b], x, a, b)
    check(lambda x, a, b: x[:, b, a], x, a, b)
    check(lambda x, a, b: x[a, :, b], x, a, b)
    check(lambda x, a: x[None, a, ..., a], x, a)
    check(
        lambda i: (i.unsqueeze(-1) == torch.arange(10)).long(), i
    )  # one_hot, as PyTorch traces it


@pytest.mark.parametrize(
    ("function", "inputs", "exception"),
    [
        (lambda i, w: F.embedding(i, w), (torch.tensor([3, 10]), torch.randn(10, 4)), IndexError),
        (lambda i, w: F.embedding(i, w), (torch.tensor([-1]), torch.randn(10, 4)), IndexError),
        (lambda x, i: x[i], (torch.randn(3, 2), torch.tensor([-4, 0])), IndexError),
        (lambda x, i: x.gather(0, i), (torch.randn(3, 2), torch.tensor([[3, 0]])), RuntimeError),
        (F.cross_entropy, (torch.randn(2, 3), torch.tensor([0, 3])), IndexError),
    ],
)
def test_indices_out_of_range_raise_as_in_eager(function, inputs, exception):
    with pytest.raises(exception):
        function(*inputs)
    gm = graph_of(function, *(t.clamp(0, 1) if not t.is_floating_point() else t for t in inputs))
    program = lower(gm.graph, gm)
    with pytest.raises(exception):
        interp.run(program, inputs)


def test_variances_of_large_numbers():
    """Squares of them are not in float32."""
    x = torch.randn(5, 40) * 1e30
    compiled(lambda x: (x.std(1), x.std(), *torch.std_mean(x, 0)), x)
    compiled(lambda x: x.var(1), x * 1e-11)


def test_variances_of_equal_numbers():
    """Zero, as programs ask for that before they divide by it."""
    for n in (9, 37, 100, 1000):
        x = torch.full((4, n), 0.1, dtype=torch.float64)
        compiled(lambda x: (x.var(1), x.std(0), *torch.std_mean(x, 1)), x, atol=0)


def test_means_beside_variances_of_infinities():
    """They follow the elements: what comes behind an infinite one makes it no number."""
    x = torch.ones(4, 9)
    x[0, 3], x[1, 8], x[2, 0] = math.inf, math.inf, -math.inf
    compiled(lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, 0), *torch.var_mean(x)), x)
    compiled(lambda x: torch.var_mean(x[:, 8:], 1, correction=0, keepdim=True), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_16_bits_are_rounded_at_every_step(dtype):
    compiled(
        lambda x: (x.prod(0), x.prod(1), x.prod()),
        (torch.rand(6, 40) + 0.5).to(dtype),
        rtol=0,
        atol=0,
    )
