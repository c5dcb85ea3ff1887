"""Gradients, hooks, modes, custom ops."""

import pytest
import torch
from torch import nn

from tests.public_issues.cases import Cases

cases = Cases()


@cases(91468, grad=True)
def gradients_kept_on_the_way():
    def f(x):
        y = x.clone()
        y.retain_grad()
        z = y.clone()
        z.retain_grad()
        return z, y

    def g(x):
        z, y = f(x)
        z.clone().backward()
        return z.grad, y.grad, x.grad

    return g, (torch.randn([], requires_grad=True),)


@cases(91468, grad=True)
def gradients_kept_on_results():
    def f(x):
        y = x * 2
        y.retain_grad()
        return y, y.sin()

    class Outside:
        def __call__(self, jitted, x):
            y, z = jitted(x)
            z.backward()
            return y.grad

    return f, (torch.randn([], requires_grad=True),)


@cases(91468, grad=True)
def hook_on_what_lies_between():
    def f(x):
        y = x * x
        z = y * x * x
        print("break")
        y.register_hook(lambda g: 3.14 * g)
        (result,) = torch.autograd.grad(z, x)
        return result

    return f, (torch.tensor(1.0, requires_grad=True),)


class ZeroBackward(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)


@cases(193279, grad=True)
def function_under_a_transform():
    def loss(x):
        return ZeroBackward.apply(x).sum()

    return (lambda x: torch.func.grad(loss)(x)), (torch.randn(4),)


@cases(193279, backward=True)
def function_with_a_gradient_of_its_own():
    return (lambda x: ZeroBackward.apply(x) + x), (torch.randn(4, requires_grad=True),)


class WritesItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        y += 1
        return y

    @staticmethod
    def backward(ctx, g):
        return g * 3


@cases(180642, backward=True)
def function_that_writes_what_it_returns():
    return (lambda x: WritesItsInput.apply(x) * 2), (torch.randn(4, requires_grad=True),)


@cases(181581, grad=True)
def gradient_of_a_gradient():
    def f(x):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return g

    def outside(x):
        g = f(x)
        g.sum().backward()
        return g, x.grad

    return outside, (torch.randn(3, requires_grad=True),)


@cases(182012, backward=True)
def scattered_diagonal():
    def f(x, s):
        return torch.diagonal_scatter(x, s).sum()

    return f, (torch.randn(8, 8, requires_grad=True), torch.randn(8, requires_grad=True))


@cases(179804, backward=True)
def autocast_turned_off_inside():
    w = nn.Linear(16, 16)

    def f(x):
        with torch.autocast("cpu", enabled=False):
            return x.float() @ w.weight.float().T

    def under_autocast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return f(x), w(x)

    return under_autocast, (torch.randn(4, 16, dtype=torch.bfloat16, requires_grad=True),)


@cases(114338)
def gradients_turned_on_inside():
    def f(x):
        with torch.enable_grad():
            return x + 1

    return f, (torch.zeros(10, requires_grad=True),)


@cases(135892, grad=True)
def inference_and_then_training():
    layer = nn.Linear(4, 8)

    def f(x, inference):
        if inference:
            with torch.inference_mode():
                return layer(x).mean()
        loss = layer(x).mean()
        loss.backward()
        return loss, layer.weight.grad.clone()

    return f, (torch.randn(2, 4), True), (torch.randn(2, 4), False), (torch.randn(2, 4), True)


@cases(180823)
def views_in_inference_mode():
    def f(x):
        with torch.inference_mode():
            return x.view(-1)[1:] * 2, x.t()

    return f, (torch.randn(2, 3),)


@cases(168236, grad=True)
def parameters_made_of_results():
    def f(x):
        a = x.sigmoid().view(2, -1)
        p = nn.Parameter(a)
        with torch.no_grad():
            p.mul_(1.5)
        return a, p, nn.Parameter(torch.cat([x, x], 1))

    return f, (torch.randn(2, 3),)


# --- custom ops

torch.library.define("frameloom_issues::add_both", "(Tensor(a!) x, Tensor(b!) y) -> ()")
torch.library.define("frameloom_issues::sum_into", "(Tensor x, Tensor y, Tensor(a!) out) -> ()")
torch.library.define("frameloom_issues::reverse_into", "(Tensor src, Tensor(a!) dst) -> ()")


@torch.library.impl("frameloom_issues::add_both", "CompositeExplicitAutograd")
def add_both(x, y):
    x.add_(1)
    y.add_(2)


@torch.library.impl("frameloom_issues::sum_into", "CompositeExplicitAutograd")
def sum_into(x, y, out):
    out.copy_(x + y + 2)


@torch.library.impl("frameloom_issues::reverse_into", "CompositeExplicitAutograd")
def reverse_into(src, dst):
    for k in range(len(src)):
        dst[len(src) - 1 - k] = src[k]


OPS = torch.ops.frameloom_issues


@cases(153389)
def custom_ops_on_parts_of_one_tensor():
    def f(x):
        a, b, out = x[0], x[1], torch.zeros_like(x)
        OPS.add_both(a, b)
        OPS.sum_into(a[0], b[0], out)
        return out, x

    return f, (torch.randn(3, 3),)


@cases(127821)
def read_behind_a_custom_write():
    def f(x, y):
        whole = torch.full((2, 3), 1.0)
        OPS.sum_into(x, y, whole)
        return (whole * whole).sum()

    return f, (torch.randn(3), torch.randn(3))


@cases(198031)
def custom_write_to_what_was_cloned():
    def f(x):
        y = x.clone()
        OPS.reverse_into(y, x)
        return x * 2.0

    return f, (torch.arange(8.0),)


@cases(130487)
def custom_write_to_a_transposed_tensor():
    def f(x):
        y = (x * 2).t()
        OPS.add_both(y, x)
        return y, y.t() + 1

    return f, (torch.randn(3, 4),)


@cases(139257)
def custom_op_beside_a_parameter():
    p = nn.Parameter(torch.zeros(3), requires_grad=False)

    def f(x):
        OPS.sum_into(x, x, p)
        return p / 3

    return f, (torch.randn(3),), (torch.randn(3),)


@pytest.mark.parametrize("case", cases)
def test_issue(case):
    case.run()
