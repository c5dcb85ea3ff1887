"""Small programs that are called very often: gradients, hooks and modes.  Each function makes one: it returns what is done in the k-th call.

Sizes are 0, 1 and others in turn; `calls` says how many are done where a call takes long, as a share of those asked for.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from frameloom import jit
from tests.flat.making import SIZES, Call, calls, every, matrices, of, vectors


@every
def gradients() -> Call:
    f, xs = jit(lambda x: (x * x).tanh()), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(f(x).sum(), x)

    return call


@every
def gradients_that_nobody_asks_for() -> Call:
    f, xs = jit(lambda x: (x * x).tanh()), vectors(True)
    return lambda k: f(of(xs, k))


@every
def gradients_of_a_part() -> Call:
    f, xs = jit(lambda x, y: (x * y, y.exp(), x.sum())), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(of(f(x, x * 2), k // 8).sum(), x)

    return call


@every
def gradients_that_accumulate() -> Call:
    f, xs = jit(lambda x, w: (x @ w).relu()), matrices()
    w = torch.randn(3, 2, requires_grad=True)

    def call(k: int) -> None:
        f(of(xs, k), w).sum().backward()
        if k % 4 == 3:
            w.grad = None

    return call


@calls(0.3)
def gradients_of_gradients() -> Call:
    f, xs = jit(lambda x: (x * x).tanh()), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)

    return call


@every
def backward_inside() -> Call:
    w = torch.randn(3, 3, requires_grad=True)

    def fn(x: Any) -> Any:
        w.grad = None
        (x @ w).sum().backward()
        return w.grad * 2

    f, xs = jit(fn), matrices()
    return lambda k: f(of(xs, k))


@every
def a_step_of_training() -> Call:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-9)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    f, xs = jit(step), matrices()
    return lambda k: f(of(xs, k))


@every
def a_module() -> Call:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    jit(net)
    xs = [torch.randn(n + 2, 3) for n in SIZES]
    return lambda k: net(of(xs, k)).sum().backward()


@every
def modes_that_change() -> Call:
    f, xs = jit(lambda x: x * 2 + 1), vectors(True)
    modes = (torch.no_grad, torch.inference_mode, torch.enable_grad)

    def call(k: int) -> Any:
        with of(modes, k)():  # type: ignore[arg-type]
            return f(of(xs, k))

    return call


@every
def autocast() -> Call:
    w = torch.randn(3, 3, requires_grad=True)

    def fn(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return x @ w @ w

    f, xs = jit(fn), matrices()
    return lambda k: f(of(xs, k)).sum().backward()


@every
def autocast_around() -> Call:
    w = torch.randn(3, 3, requires_grad=True)
    f, xs = jit(lambda x: (x @ w).relu() @ w), matrices()

    def call(k: int) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            f(of(xs, k)).sum().backward()

    return call


@every
def breaks_with_gradients() -> Call:
    def inner(x: Any) -> Any:
        y = x.sin()
        gc.isenabled()
        return y * x

    def fn(x: Any) -> Any:
        rest = [inner(x) for _ in range(2)]
        gc.isenabled()
        return rest[0] + rest[1].cos()

    f, xs = jit(fn), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(f(x).sum(), x)

    return call


@every
def an_exception_of_a_backward_pass() -> Call:
    f, xs = jit(lambda x: x.exp() * 2), vectors(True)

    def call(k: int) -> None:
        x = of(xs, k)
        y = f(x).sum()
        torch.autograd.grad(y, x)
        with contextlib.suppress(RuntimeError):
            torch.autograd.grad(y, x)

    return call


@every
def views_with_gradients() -> Call:
    def fn(x: Any) -> Any:
        y = x * 2
        return y.t(), y[:, 1:], x.view(-1), x.detach()

    f, xs = jit(fn), matrices(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(sum(t.sum() for t in f(x)), x)

    return call


@every
def writes_with_gradients() -> Call:
    def fn(x: Any) -> Any:
        y = x * 2
        y.mul_(x)
        y[:1].zero_()
        return y

    f, xs = jit(fn), matrices(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(f(x).sum(), x)

    return call


@every
def hooks_of_results() -> Call:
    f, xs = jit(lambda x: (x.exp(), x.sin())), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        a, b = f(x)
        a.register_hook(lambda g: g * 2)
        b.retain_grad()
        (a.sum() + b.sum()).backward()
        x.grad = None
        return b.grad

    return call


@every
def hooks_inside() -> Call:
    def fn(x: Any) -> Any:
        y = x.exp()
        y.register_hook(lambda g: g * 2)  # one that holds y is never freed by PyTorch
        return y * 2

    f, xs = jit(fn), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(f(x).sum(), x)

    return call


@every
def hooks_of_a_module() -> Call:
    net = torch.nn.Linear(3, 2)
    net.register_forward_hook(lambda module, given, made: made * 2)
    net.register_full_backward_hook(lambda module, given, made: None)
    f, xs = jit(lambda x: net(x).relu()), matrices(True)
    return lambda k: f(of(xs, k)).sum().backward()


@every
def checkpointed() -> Call:
    def inner(x: Any) -> Any:
        return x.exp().sin()

    f = jit(lambda x: checkpoint(inner, x * 2, use_reentrant=False))
    xs = vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(f(x).sum(), x)

    return call


@every
def checkpointed_around() -> Call:
    f, xs = jit(lambda x: x.exp().sin()), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(checkpoint(f, x, use_reentrant=False).sum(), x)

    return call


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Any, k: int) -> Any:
        context.save_for_backward(x)
        context.k = k
        return x * k

    @staticmethod
    def backward(context: Any, g: Any) -> Any:
        (x,) = context.saved_tensors
        return g * context.k + x * 0, None


@every
def a_function_of_its_own() -> Call:
    f, xs = jit(lambda x: Double.apply(x.sin(), 2).cos()), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(f(x).sum(), x)

    return call


@every
def sizes_of_the_data_with_gradients() -> Call:
    f, xs = jit(lambda x: x[x > 0] * 2), vectors(True)

    def call(k: int) -> Any:
        x = of(xs, k)
        return torch.autograd.grad(f(x).sum(), x)

    return call


@every
def random_numbers() -> Call:
    f, xs = jit(lambda x: torch.dropout(x, 0.5, True) + torch.rand_like(x)), vectors(True)
    return lambda k: f(of(xs, k)).sum().backward()


@every
def an_lstm() -> Call:
    net = torch.nn.LSTM(3, 4)
    f, xs = jit(lambda x: net(x)[0]), [torch.randn(n, 2, 3) for n in (1, 3, 2, 5)]
    return lambda k: f(of(xs, k)).sum().backward()


@every
def attention_and_convolution() -> Call:
    net = torch.nn.Conv1d(2, 2, 3, padding=1)

    def fn(x: Any) -> Any:
        y = net(x)
        return torch.nn.functional.scaled_dot_product_attention(y, y, y)

    f, xs = jit(fn), [torch.randn(n, 2, 4) for n in (1, 3, 2, 5)]
    return lambda k: f(of(xs, k)).sum().backward()
