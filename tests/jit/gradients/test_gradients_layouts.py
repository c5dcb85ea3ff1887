"""Channels-last convolutions in training: what is saved between the passes lies so, what the program sees lies as in eager."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from frameloom.ir.lower.layout import channels_last
from tests.jit.gradients.training import leaf, same_training


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch):
    monkeypatch.setattr(channels_last, "everywhere", True)


class Block(nn.Module):
    def __init__(self, channels=6):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.single = nn.Conv2d(channels, 8, 1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = nn.Linear(4, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(F.gelu(self.single(x)), 3, 2, 1)
        x = x + self.grouped(x)
        return self.last(F.silu(self.up(x)).mean((2, 3)))


def steps(model, f, x, count=2):
    seen = []
    for _ in range(count):
        x = x.detach().clone().requires_grad_()
        loss = f(x).square().sum()
        loss.backward()
        seen += [loss.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
    return seen


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_training_equals_eager(layout):
    torch.manual_seed(0)
    model = Block()
    other = copy.deepcopy(model)
    x = torch.randn(2, 3, 17, 16).contiguous(memory_format=layout)
    expected, got = steps(model, model, x), steps(other, frameloom.jit(other), x)
    for e, g in zip(expected, got, strict=True):
        # Libraries leave strides of dimensions of size 1 open.
        assert [n for n, size in zip(g.stride(), g.shape, strict=True) if size > 1] == [
            n for n, size in zip(e.stride(), e.shape, strict=True) if size > 1
        ]
        torch.testing.assert_close(g, e, rtol=2e-5, atol=2e-5)


def test_intermediates_that_the_program_sees():
    conv = nn.Conv2d(3, 4, 3)

    def features(x):
        y = conv(x)
        return y, y.relu().sum(), y[:, :2]

    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    expected, got = features(x), frameloom.jit(features)(x)
    for e, g in zip(expected, got, strict=True):
        assert g.stride() == e.stride() and g.storage_offset() == e.storage_offset()
        torch.testing.assert_close(g, e)
    (want,) = torch.autograd.grad(expected[1] + expected[2].sum(), x)
    (have,) = torch.autograd.grad(got[1] + got[2].sum(), x)
    torch.testing.assert_close(have, want)


def test_a_pass_that_a_mode_watches():
    model = Block()
    f = frameloom.jit(model)
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    (first,) = torch.autograd.grad(f(x).sum(), x)
    with torch.autocast("cpu", enabled=True):
        (watched,) = torch.autograd.grad(f(x).float().sum(), x)
    assert watched.stride() == first.stride()


# Kernel, stride, padding, dilation, results of a channel.
WINDOWS = [
    ((3, 3), 1, 1, 1, 1), ((3, 3), 2, 1, 1, 1), ((5, 3), (2, 1), (2, 0), 1, 2), ((3, 3), 2, 2, 2, 1), ((5, 5), 3, 2, 1, 3), ((7, 7), 1, 3, 1, 1)
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "each"), WINDOWS, ids=str)
def test_each_channel_by_itself(kernel, stride, padding, dilation, each):
    torch.manual_seed(0)
    given = torch.randn(2, 8, 14, 15), torch.randn(8 * each, 1, *kernel), torch.randn(8 * each)

    def f(x, weight, bias):
        return F.conv2d(x.sin(), weight, bias, stride, padding, dilation, groups=8).cos()

    mine, other = ([t.clone().requires_grad_() for t in given] for _ in range(2))
    result, expected = frameloom.jit(f, fullgraph=True)(*mine), f(*other)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    result.sum().backward()
    expected.sum().backward()
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=2e-4)
        assert a.grad.stride() == b.grad.stride()


@pytest.mark.parametrize(
    "laid",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.transpose(1, 3),
        lambda x: x.permute(3, 0, 2, 1),
        lambda x: x[:, :, ::2],
        lambda x: x[:1].transpose(1, 2),
    ],
)
def test_dropout_draws_in_the_order_of_memory(laid):
    def program(jit):
        f = jit(lambda x: torch.dropout(laid(x).exp(), 0.3, True) * 2)
        seen = []
        for _ in range(2):
            x = leaf(2, 6, 4, 5)
            y = f(x)
            y.square().sum().backward()
            seen += [y, x.grad]
        return seen

    same_training(program, graphs=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_convolutions_where_sizes_of_1_leave_a_choice(dtype):
    """Whether a tensor is taken to lie channels-last, its strides say there."""

    def images(*shape, last):
        x = torch.randn(shape, dtype=dtype)
        if last:
            n, c, h, w = shape
            x = torch.empty_strided(shape, (c * h * w, 1, c * w, c), dtype=dtype).copy_(x)
        return x

    for shape, kernel in (
        ((2, 8, 1, 1), (4, 8, 1, 1)),
        ((2, 8, 5, 5), (4, 8, 1, 1)),
        ((2, 1, 4, 4), (4, 1, 3, 3)),
        ((2, 8, 3, 3), (4, 8, 3, 3)),
    ):
        fn = frameloom.jit(lambda x, w: torch.where(F.conv2d(x, w) > 0, F.conv2d(x, w) * 2, 0.0))
        for last_x in (False, True, False):
            for last_w in (False, True):
                x, w = images(*shape, last=last_x), images(*kernel, last=last_w)
                want = torch.where(F.conv2d(x, w) > 0, F.conv2d(x, w) * 2, 0.0)
                got = fn(x, w)
                torch.testing.assert_close(got, want)
                assert got.stride() == want.stride(), (shape, kernel, last_x, last_w)


SECOND = {
    "exp": lambda z: z.exp(),
    "roll": lambda z: z.roll(2, 0),
    "cat": lambda z: torch.cat([z, z]),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SECOND)
def test_the_gradient_of_one_result_that_comes_in_another_layout(name, dynamic):
    """What is left of the sum of both lies as it does, whichever way they come."""

    def fn(z):
        return z * 0, SECOND[name](z)

    def seen(side):
        found = []
        for shape, which in (((3, 2), [0, 1]), ((1, 2), [0]), ((1, 2), [1]), ((1, 2), [0, 1])):
            z = torch.ones(shape[::-1], requires_grad=True).t()
            results = [side(z)[k] for k in which]
            given = [torch.ones(r.shape) for r in results]
            found.append(torch.autograd.grad(results, z, given)[0].stride())
        return found

    assert seen(frameloom.jit(fn, dynamic=dynamic)) == seen(fn)


OTHER_WAYS = {
    "plain": lambda t: t.contiguous(),
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "channels last": lambda t: (
        t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t
    ),
    "stepped": lambda t: torch.cat([t, t], -1)[..., ::2],
}
LAYERS = {
    "group_norm": lambda x, w: F.group_norm(x, 2, w[:, 0, 0, 0].repeat(2)[: x.shape[1]]),
    "conv2d": lambda x, w: F.conv2d(x, w) if x.dim() == 4 else x * 1,
    "conv_transpose2d": lambda x, w: F.conv_transpose2d(x, w) if x.dim() == 4 else x * 1,
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, training=True),
    "max_pool2d": lambda x, w: F.max_pool2d(x, 2) if x.dim() == 4 else x * 1,
}


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 5), (2, 4, 4, 6)])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_whose_gradient_comes_in_another_layout(name, shape, backend):
    """Autograd copies it for some kernels, which would read other memory."""
    fn = LAYERS[name]
    jitted = frameloom.jit(fn, **({} if backend is None else {"backend": backend}))
    for lay_x in OTHER_WAYS.values():
        for lay_given in OTHER_WAYS.values():
            made = []
            for side in (jitted, fn):
                torch.manual_seed(0)
                x = lay_x(torch.rand(shape)).detach().requires_grad_()
                w = torch.rand(4, 4, 2, 2, requires_grad=True)
                result = side(x, w)
                given = lay_given(torch.rand(result.shape))
                made.append(torch.autograd.grad(result, (x, w), given, allow_unused=True))
            for a, b in zip(*made, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    torch.testing.assert_close(a, b, check_stride=True, rtol=1e-3, atol=1e-4)
