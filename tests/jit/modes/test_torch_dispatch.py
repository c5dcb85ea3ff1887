"""Tensors with a `__torch_dispatch__` in compiled code: sizes that vary, gradients, modes around the call."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from frameloom import jit
from tests.programs.subclasses.test_122_torch_dispatch import Two, Weight, quantized


def test_quantized_layers_take_any_batch():
    net = quantized()
    compiled = jit(net, fullgraph=True)
    with torch.no_grad():
        for batch in (3, 5, 7, 1, 5):
            x = torch.randn(batch, 4)
            torch.testing.assert_close(compiled(x), net(x))


def test_wrappers_of_any_size():
    def fn(x):
        y = x.sin() @ x.T
        return y.a, y.b, y.shape

    compiled = jit(fn, fullgraph=True)
    for n in (2, 3, 5, 2):
        x = Two(torch.randn(n, 4), torch.randn(n, 4))
        for got, want in zip(compiled(x), fn(x), strict=True):
            assert torch.equal(got, want) if isinstance(got, torch.Tensor) else got == want


def test_a_gradient_of_the_other_operand():
    net = quantized()
    compiled = jit(net)
    for _ in range(2):
        grads = []
        for side in (compiled, net):
            x = torch.ones(3, 4, requires_grad=True)
            side(x).cos().sum().backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads)


def test_an_inner_tensor_that_requires_a_gradient():
    def fn(x):
        y = x * 2
        return y, y.a

    a = torch.ones(3, requires_grad=True)
    for got, want in zip(jit(fn)(Two(a, a)), fn(Two(a, a)), strict=True):
        assert type(got) is type(want)
        assert got.requires_grad is want.requires_grad


def test_a_wrapper_that_requires_a_gradient():
    def fn(x):
        return x * 2

    def made():
        x = Two(torch.ones(3), torch.ones(3))
        return x.requires_grad_()

    got, want = jit(fn)(made()), fn(made())
    assert got.requires_grad is want.requires_grad is True
    assert type(got.grad_fn) is type(want.grad_fn)
    with torch.no_grad():
        got, want = jit(fn, fullgraph=True)(made()), fn(made())
    assert got.requires_grad is want.requires_grad is False


class Cosine(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) + (1 if func is torch.sin else 0)


class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) + (1 if func is torch.ops.aten.sin.default else 0)


@pytest.mark.parametrize("mode", [Cosine, Ops])
@pytest.mark.parametrize("wraps", [False, True])
def test_modes_around_the_call_and_inside(mode, wraps):
    def fn(x):
        return torch.sin(x)

    def inside(x):
        y = torch.sin(x)
        with mode():
            y = torch.sin(y)
        return torch.sin(y)

    x = Two(torch.ones(3), torch.zeros(3)) if wraps else torch.ones(3)
    compiled, compiled_inside = jit(fn), jit(inside)

    def plain(y):
        return [y.a, y.b] if wraps else [y]

    for _ in range(2):
        assert all(map(torch.equal, plain(compiled(x)), plain(fn(x))))
        with mode():
            got, want = compiled(x), fn(x)
        assert all(map(torch.equal, plain(got), plain(want)))
        assert all(map(torch.equal, plain(compiled_inside(x)), plain(inside(x))))


def backward_inside(x):
    y = (x * 2).sin().sum()
    y.backward()
    return x.grad


def gradient_inside(x):
    y = (x * 2).sin()
    return torch.autograd.grad(y, x, torch.ones_like(y))[0]


def a_view(x):
    return (x * 2).t()


@pytest.mark.parametrize("fn", [backward_inside, gradient_inside, a_view])
def test_gradients_of_wrappers(fn):
    compiled = jit(fn)
    for _ in range(2):
        seen = []
        for side in (compiled, fn):
            x = Two(torch.ones(2, 3), torch.zeros(2, 3)).requires_grad_()
            y = side(x)
            if y.requires_grad:
                y.sum().backward()
            parts = [z if z is None else [z.a.tolist(), z.b.tolist()] for z in (y, x.grad)]
            seen.append((type(y), y.requires_grad, y._is_view(), parts))
        assert seen[0] == seen[1]


def test_a_wrapper_as_a_trained_weight():
    def fn(x, w):
        return torch.nn.functional.linear(x, w).a.square()

    compiled = jit(fn)
    seen = []
    for side in (compiled, fn):
        w = torch.nn.Parameter(Two(torch.ones(2, 4), torch.zeros(2, 4)))
        y = side(torch.ones(3, 4), w)
        seen.append((type(w), y.requires_grad, y.tolist(), w.grad))
    assert seen[0] == seen[1]


def test_jagged_layers_are_trained():
    net = torch.nn.Linear(3, 2)
    compiled = jit(lambda x: net(x).sin().values())
    grads = []
    for side in (compiled, lambda x: net(x).sin().values()):
        net.zero_grad()
        rows = [torch.ones(2, 3), torch.ones(4, 3)]
        x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
        side(x).sum().backward()
        grads.append((net.weight.grad.clone(), x.grad.values()))
    torch.testing.assert_close(*grads)


def test_jagged_tensors():
    def fn(x):
        return (x * 2).sin()

    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    got, want = jit(fn)(x), fn(x)
    assert type(got) is type(want)
    assert torch.equal(got.values(), want.values())


def test_a_parameter_of_a_quantized_weight_made_inside():
    def fn(m, x):
        m.weight = torch.nn.Parameter(Weight.of(m.weight.detach()), requires_grad=False)
        return m(x)

    def made():
        torch.manual_seed(0)
        return torch.nn.Linear(4, 2)

    x = torch.ones(3, 4)
    with torch.no_grad():
        m, n = made(), made()
        torch.testing.assert_close(jit(fn)(m, x), fn(n, x))
        assert type(m.weight) is type(n.weight) is Weight


def test_writes_are_counted():
    def fn(x):
        x.add_(1)
        x[0].mul_(2)
        y = x + 1
        y.mul_(3)
        return y

    sides = []
    for side in (jit(fn, fullgraph=True), fn):
        x = Two(torch.ones(3, 2), torch.zeros(3, 2))
        y = side(x)
        sides.append((x._version, y._version, x.a.tolist(), y.b.tolist()))
    assert sides[0] == sides[1]
