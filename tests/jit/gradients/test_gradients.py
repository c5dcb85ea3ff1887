"""Calls that need gradients: forward and backward compiled, as one node of the program's autograd graph."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom


def gradients(fn, *args):
    """Outputs, and the gradients of the arguments that want one, of a weighted sum of the outputs."""
    args = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    out = fn(*args)
    outs = out if isinstance(out, tuple) else (out,)
    parts = [o for o in outs if o.requires_grad]
    weights = [torch.linspace(0.5, 2, p.numel(), dtype=p.dtype).view(p.shape) for p in parts]
    torch.autograd.backward(parts, weights)
    return outs, [a.grad for a in args]


def check(fn, *args, graphs=1, plain=0):
    expected = gradients(fn, *args)
    frameloom.reset()
    jitted = frameloom.jit(fn)
    for _ in range(2):
        outs, grads = gradients(jitted, *args)
        for got, want in zip((*outs, *grads), (*expected[0], *expected[1]), strict=True):
            if want is None:
                assert got is None
                continue
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()
            assert got.requires_grad == want.requires_grad
    stats = frameloom.stats()
    assert (stats["graphs"], stats["plain"]) == (graphs, plain), stats


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


X, W, B = torch.randn(4, 8), leaf(8, 8), leaf(8)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b: torch.relu(F.linear(x, w, b)).sum(),
        lambda x, w, b: F.gelu(F.layer_norm(F.linear(x, w, b), (8,))) * F.softmax(x, -1),
        lambda x, w, b: (F.linear(x, w, b).tanh(), (x @ w).detach() + 1, (w * b).exp().sum(0)),
        lambda x, w, b: F.cross_entropy(x @ w, torch.tensor([1, 2, 3, 0])),
        lambda x, w, b: (x @ w).t()[1:3],
        lambda x, w, b: (x * 2, w * 3),
        lambda x, w, b: (w, x @ w),
        lambda x, w, b: x * 2 + b.detach(),
    ],
)
def test_of_functions(fn):
    check(fn, X, W, B)


LABELS, SEVERAL, SAMPLES = (
    torch.tensor([1, 2, 7, 0]),
    torch.tensor([[3, 0, -1, 1, 2, 4, 5, 6]] * 4),
    torch.rand(1, 1, 3),
)


@pytest.mark.parametrize(
    "fn",
    [
        lambda w: F.multi_margin_loss(w * 2, LABELS, p=2, weight=torch.arange(8.0)),
        lambda w: F.multi_margin_loss(w.t()[:4].t()[:4], LABELS[:1].expand(4), reduction="none"),
        lambda w: F.multilabel_margin_loss(w * 2, SEVERAL),
        lambda w: F.fractional_max_pool3d(
            w.view(1, 1, 4, 4, 2), 1, (2, 2, 1), _random_samples=SAMPLES
        ),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_of_derivatives_without_a_meta_kernel(fn, dynamic):
    w = torch.randn(4, 8)
    expected = gradients(fn, w.requires_grad_())
    got = gradients(frameloom.jit(fn, fullgraph=True, dynamic=dynamic), w)
    torch.testing.assert_close(got, expected)
    assert got[1][0].stride() == expected[1][0].stride()


def test_a_gradient_that_is_none_stays_none():
    def f(x, w, b):
        return w * 2, b * 3

    jitted = frameloom.jit(f)
    w, b = leaf(3), leaf(3)
    first, _ = jitted(X, w, b)
    first.sum().backward()
    assert b.grad is None
    assert torch.equal(w.grad, torch.full((3,), 2.0))


def test_no_grad_inside():
    def f(x, w, b):
        with torch.no_grad():
            scale = (x @ w).abs().max()
        return (x @ w) / scale + b

    check(f, X, W, B)


def test_writes_to_what_was_made_inside():
    def f(x, w, b):
        y = x @ w
        y[1:3] *= 2
        return y + b

    check(f, X, W, B)


def test_across_a_break():
    def f(x, w, b):
        y = torch.tanh(x @ w)
        frameloom.graph_break()
        return y * b

    check(f, X, W, B, graphs=2)


def test_saved_tensors_that_change_are_noticed():
    jitted = frameloom.jit(lambda x, w: (x * w).exp())
    x, w = torch.randn(3), leaf(3)
    out = jitted(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_twice_through_one_graph():
    jitted = frameloom.jit(lambda w: w.exp().sin())
    w = leaf(5)
    out = jitted(w).sum()
    out.backward(retain_graph=True)
    first = w.grad.clone()
    out.backward()
    torch.testing.assert_close(w.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_training():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    model.load_state_dict(plain.state_dict())
    frameloom.jit(model)
    losses = []
    sides = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (plain, model)]
    for _ in range(10):
        x = torch.randn(32, 8)
        for m, optimizer in sides:
            optimizer.zero_grad()
            loss = F.mse_loss(m(x), x[:, :4])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    torch.testing.assert_close(losses[::2], losses[1::2])


def test_batch_norm_in_training():
    def sides():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())

    frameloom.reset()
    plain, model = sides(), frameloom.jit(sides())
    x = torch.randn(2, 3, 6, 6)
    for _ in range(3):
        for m in (plain, model):
            m(x).square().mean().backward()
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
    for a, b in zip(plain.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert frameloom.stats()["plain"] == 0


def test_elementwise_work_is_done_again_instead_of_saved():
    jitted = frameloom.jit(lambda x, w: (((x * 2).exp().sin() + 1).cos() * w).sum())
    x, w = leaf(64, 64), leaf(64, 64)
    out = jitted(x, w)
    first, second = out.grad_fn.saved_tensors
    assert first is w
    assert second.shape == x.shape  # eager does not save x, which may change


def penalty(critic, x):
    """The gradient penalty of WGAN-GP."""
    (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((gradient.norm(dim=1) - 1) ** 2).mean()


def test_gradients_of_gradients():
    frameloom.reset()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    model = frameloom.jit(copy.deepcopy(plain))
    x = torch.randn(5, 4, requires_grad=True)
    for m in (plain, model):
        penalty(m, x).backward()
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert frameloom.stats()["plain"] == 0


def test_products_with_a_hessian():
    def f(x):
        return (x.sin() * x.roll(1)).exp().sum()

    x, v = leaf(6), torch.randn(6)
    found = []
    for fn in (f, frameloom.jit(f)):
        (gradient,) = torch.autograd.grad(fn(x), x, create_graph=True)
        found += torch.autograd.grad(gradient @ v, x)
    torch.testing.assert_close(*found)


def test_gradients_of_gradients_need_inputs_as_they_were():
    """The first gradient is given: nobody may ask for its own."""
    jitted = frameloom.jit(lambda x: (x.exp() * 3).sum())
    x = leaf(3)
    out = jitted(x * 1)
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    torch.testing.assert_close(gradient, x.exp() * 3)
    y = x * 1
    out = jitted(y)
    with torch.no_grad():
        y.add_(1)
    (again,) = torch.autograd.grad(out, x, create_graph=True)
    torch.testing.assert_close(again, gradient)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(again.sum(), x)


def test_gradients_of_gradients_and_running_statistics():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    model = frameloom.jit(copy.deepcopy(plain))
    x = torch.randn(5, 4, requires_grad=True)
    for m in (plain, model):
        penalty(m, x).backward()
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for a, b in zip(plain.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_backend_gets_both_graphs_with_examples():
    seen = []

    def backend(module, examples):
        seen.append((len(examples), all(isinstance(e, torch.Tensor) for e in examples)))
        assert len(module.forward(*examples)) > 0
        return module.forward

    x, w = torch.randn(4, 8), leaf(8, 8)
    jitted = frameloom.jit(lambda x, w: torch.tanh(x @ w), backend=backend)
    jitted(x, w).sum().backward()
    assert seen[0] == (2, True)
    assert len(seen) == 2
    assert seen[1][1]
    expected = torch.autograd.grad(torch.tanh(x @ w).sum(), w)[0]
    torch.testing.assert_close(w.grad, expected)


@pytest.mark.parametrize("loss", [F.mse_loss, F.huber_loss, F.smooth_l1_loss])
def test_means_of_nothing(loss):
    x = torch.ones(0, 3, requires_grad=True)
    frameloom.jit(loss)(x, x * 2).backward()
    assert x.grad.shape == (0, 3)
