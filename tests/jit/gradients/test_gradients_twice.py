"""Gradients of gradients through compiled calls."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


def test_gradient_penalty():
    def program(jit):
        critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.LayerNorm(8), nn.Linear(8, 1))
        jit(critic)
        optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            real, made = torch.randn(5, 4), torch.randn(5, 4)
            mix = torch.rand(5, 1)
            x = (mix * real + (1 - mix) * made).requires_grad_()
            (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            loss = critic(made).mean() - critic(real).mean() + ((g.norm(dim=1) - 1) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, list(critic.parameters())

    same_training(program)


def test_hessian_vector_product():
    def program(jit):
        f = jit(lambda x: (x.sin() * x.roll(1)).exp().sum())
        seen = []
        for _ in range(2):
            x, v = leaf(6), torch.randn(6)
            (g,) = torch.autograd.grad(f(x), x, create_graph=True)
            seen += torch.autograd.grad(g @ v, x, retain_graph=True)
            (h,) = torch.autograd.grad(g @ v, x, create_graph=True)
            seen += torch.autograd.grad(h.sum(), x)  # the third
        seen.append(torch.autograd.functional.hessian(f, torch.randn(3)))
        return seen

    same_training(program, plain=None)


def test_learning_to_learn():
    def program(jit):
        @jit
        def predict(x, w, b):
            return torch.tanh(x @ w) @ b

        w, b = leaf(3, 8), leaf(8, 1)
        outer = torch.optim.SGD([w, b], lr=0.1)
        losses = []
        for _ in range(3):
            x, y = torch.randn(5, 3), torch.randn(5, 1)
            fast = [w, b]
            for _ in range(2):
                inner = F.mse_loss(predict(x, *fast), y)
                gradients = torch.autograd.grad(inner, fast, create_graph=True)
                fast = [p - 0.1 * g for p, g in zip(fast, gradients, strict=True)]
            loss = F.mse_loss(predict(x, *fast), y)
            outer.zero_grad()
            loss.backward()
            outer.step()
            losses.append(loss.item())
        return losses, facts(w, b)

    same_training(program)


@pytest.mark.parametrize("inside", [False, True])
def test_forces_from_an_energy(inside):
    def program(jit):
        model = nn.Sequential(nn.Linear(1, 8), nn.SiLU(), nn.Linear(8, 1))

        def energy(x):
            d = (x[:, None] - x[None]).square().sum(-1, keepdim=True)
            return model(d).sum()

        def forces(x):
            x = x.requires_grad_()
            e = energy(x)
            (g,) = torch.autograd.grad(e, x, create_graph=True)
            return e, -g

        if inside:
            forces = jit(forces)
        else:
            energy = jit(energy)
        seen = []
        for _ in range(3):
            x = torch.randn(4, 3)
            e, force = forces(x)
            loss = e.square() + force.square().sum()
            model.zero_grad()
            loss.backward()
            seen.append((facts(e, force), [p.grad.flatten() for p in model.parameters()]))
        return seen

    same_training(program, plain=None)


def test_random_numbers_are_those_of_the_forward_pass():
    def program(jit):
        f = jit(
            lambda x, w: (F.dropout(torch.tanh(x @ w), 0.5) * torch.rand_like(x)).square().sum()
        )
        seen = []
        for _ in range(2):
            x, w = leaf(8, 8), leaf(8, 8)
            out = f(x, w)
            torch.rand(3)
            (g,) = torch.autograd.grad(out, x, create_graph=True)
            seen += [g, torch.rand(2)]
            g.square().sum().backward()
            seen.append(facts(x, w))
        return seen

    same_training(program)


def test_running_statistics_and_changed_inputs():
    def program(jit):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        jit(model)

        @jit
        def count(x, calls):
            y = x + calls
            calls += 1
            return (y.exp() * y).sum()

        seen, calls = [], torch.ones(())
        for _ in range(2):
            x = leaf(5, 4)
            (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            ((g.norm(dim=1) - 1) ** 2).mean().backward()
            y = leaf(3)
            (g,) = torch.autograd.grad(count(y, calls), y, create_graph=True)
            g.square().sum().backward()
            seen.append(
                (facts(x, y, calls), list(model.buffers()), [p.grad for p in model.parameters()])
            )
        return seen

    same_training(program)


def test_without_gradient_mode_inside():
    def program(jit):
        @jit
        def f(x, w):
            y = (x @ w).exp()
            with torch.no_grad():
                scale = y.max()
            return (y / scale * y.detach()).square().sum()

        x, w = leaf(3, 4), leaf(4, 4)
        for _ in range(2):
            (g,) = torch.autograd.grad(f(x, w), w, create_graph=True)
            g.square().sum().backward()
        return facts(x, w)

    same_training(program)


def test_beside_draws_from_what_nothing_else_reads():
    def program(jit):
        @jit
        def f(x, w):
            F.dropout(x.exp(), 0.5)
            return w.exp()

        x, w = leaf(3), leaf(3)
        for _ in range(2):
            _, g = torch.autograd.grad(f(x, w).sum(), (x, w), create_graph=True, allow_unused=True)
            g.square().sum().backward()
        return facts(x, w)

    same_training(program)


TWO = {
    "computed": lambda x, y, w: (x * y + 1, (w * y).exp()),
    "drawn": lambda x, y, w: (x * y + y, F.dropout(w * y, 0.3)),
    "saved": lambda x, y, w: (x * y, w * y),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", TWO)
def test_beside_a_result_of_what_is_changed(name, needs, create_graph):
    """A pass to one result needs nothing of what the other one comes from."""

    def program(jit):
        f, found = jit(TWO[name]), []
        for _ in range(2):
            x, y, w = leaf(3), leaf(3), leaf(3).requires_grad_(needs)
            result, _other = f(x, y, w)
            with torch.no_grad():
                w -= 0.1
            (g,) = torch.autograd.grad(result.square().sum(), x, create_graph=create_graph)
            found.append((g.tolist(), g.requires_grad))
            if create_graph:
                found.append(torch.autograd.grad(g.sum(), y)[0].tolist())
        return found

    same_training(program)


def test_through_inputs_that_are_gone():
    def program(jit):
        f = jit(lambda h: (h * 3 + 1).relu())
        x = leaf(5)
        for _ in range(2):
            out = f(x.exp()).square().sum()
            (g,) = torch.autograd.grad(out, x, create_graph=True)
            g.sum().backward()
        return facts(x)

    same_training(program)


def test_after_the_graph_is_freed():
    def program(jit):
        f = jit(lambda x: (x + 1).sin().sum())
        seen = []
        for _ in range(2):
            x = leaf(3)
            out = f(x)
            torch.autograd.grad(out, x)
            seen.append(caught(torch.autograd.grad, out, x, create_graph=True))
        return seen

    same_training(program)


def test_some_outputs_and_views():
    def program(jit):
        f = jit(lambda x, w: (torch.tanh(x @ w), (y := (x * x) @ w).view(-1), y, w.t()))
        x, w = leaf(3, 4), leaf(4, 4)
        seen = []
        for which in (0, 1, 2, 3, 0):
            outs = f(x, w)
            g = torch.autograd.grad(
                outs[which].square().sum(), [x, w], create_graph=True, allow_unused=True
            )
            sum(t.sin().sum() for t in g if t is not None).backward()
            seen.append((g, facts(x, w)))
        return seen

    same_training(program)


def test_an_op_whose_name_is_a_word_of_python():
    def f(x):
        return x.sin() * x.detach().long().random_(2, 5)

    results = []
    for fn in (f, frameloom.jit(f)):
        x = torch.ones(3, requires_grad=True)
        torch.manual_seed(0)
        (g,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        results.append(torch.autograd.grad(g.sum(), x)[0])
    torch.testing.assert_close(results[1], results[0])


def part_of(x):
    return (x * 1)[1:]


PASSES = {
    "nothing that the backward graph needs": lambda x, y: (x * 2,),
    "nothing at all, and something": lambda x, y: (x + 1, x.sin()),
    "of other inputs": lambda x, y: (x.sin(), y.cos()),
    "of other inputs, and both": lambda x, y: (x.sin(), y.cos(), y + 1),
    "a part that is written": lambda x, y: (part_of(x).copy_(y[1:]),),
    "a part that is added to": lambda x, y: (part_of(x.detach()).add_(y[1:]),),
    "a part that is multiplied": lambda x, y: (part_of(x.detach()).mul_(y[1:])._base,),
    "a part, and something else": lambda x, y: (part_of(x).add_(y[1:])._base, y + 1, x * 2),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes_let_go_of_what_they_do_in_eager(name):
    """Of histories before the call, too."""
    seen, dynamic = [], True if "both" in name else None
    for side in (lambda f: f, lambda f: frameloom.jit(f, dynamic=dynamic)):
        x, y = leaf(2, 3).exp(), leaf(2, 3).exp()
        results = side(PASSES[name])(x, y)
        passes = [caught(r.sum().backward) for r in (*results, y, *results)]
        seen.append([p and p[0] for p in passes])
    assert seen[0] == seen[1]


LINEAR = {
    "sums": lambda x, y: (x * 2 + y).sum(0),
    "views": lambda x, y: x.t()[1:].reshape(-1) - y.flatten()[2:],
    "parts": lambda x, y: torch.cat([x[:1], y.cumsum(1)]).flip(0),
    "a mean": lambda x, y: (x - y).mean(),
    "itself": lambda x, y: x.view(-1) + 1,
    "other dtypes": lambda x, y: x.double() + y,
}


@pytest.mark.parametrize("is_expanded", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_functions_of_what_is_changed(name, is_expanded):
    """Their gradients need nothing of what the forward pass had."""
    seen = []
    for side in (LINEAR[name], frameloom.jit(LINEAR[name])):
        x, y = (leaf(2, 3) * 1 for _ in range(2))
        made = side(x, y)
        with torch.no_grad():
            x.add_(1)
            y.mul_(2)
        v = torch.ones((), dtype=made.dtype, requires_grad=True)
        given = (
            v.expand(made.shape)
            if is_expanded
            else torch.arange(1, 1 + made.numel()).view(made.shape) * v
        )
        grads = torch.autograd.grad(made, (x, y), given, create_graph=True, allow_unused=True)
        again = torch.autograd.grad(sum(g.square().sum() for g in grads if g is not None), v)
        seen.append(
            [
                g if g is None else (g.tolist(), g.stride(), g.requires_grad)
                for g in (*grads, *again)
            ]
        )
    assert seen[0] == seen[1]


WRITTEN = {
    "of another shape": lambda x: ((a := (x * x).reshape(2, 2)).mul_(2), a.sin()),
    "of the same shape": lambda x: ((a := (x * x).reshape(4)).mul_(2), a.sin()),
    "a part": lambda x: ((y := x * x), (v := y[1:].mul_(3)), v.sin(), y.cos()),
    "two parts": lambda x: ((y := x * x), (v := y[1:].mul_(3)), y[:2].mul_(2), v.sin()),
    "read in between": lambda x: ((y := x * x), (v := y[1:].mul_(3)), v * 5, y.mul_(2), v.exp()),
    "linear": lambda x: ((y := x.clone()).view(2, 2)[0].mul_(3), y * y, y),
    "overlapping": lambda x: ((y := x * x), (v := y[1:].mul_(3)), (w := v[:2].exp_()), v * w[0]),
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("number", range(2))
def test_of_results_that_are_written_as_views(name, number):
    """Nothing comes around the result to what it is computed from."""

    def program(jit):
        f, seen = jit(WRITTEN[name]), []
        for _ in range(2):
            x = leaf(4)
            results = [r for r in f(x * 1.5) if r is not None]
            loss = results[-1 - number].square().sum()
            (g,) = torch.autograd.grad(loss, x, create_graph=True)
            (g * g).sum().backward()
            seen += [g.detach(), x.grad]
        return seen

    same_training(program)


@pytest.mark.parametrize("backend", ["frameloom", "eager"])
def test_beside_tensors_of_inference_mode_that_no_gradient_needs(backend):
    """They cannot be saved, and what is computed without a history saves nothing: ops with several results, too."""

    def program(jit):
        def f(x, y, z):
            with torch.no_grad():
                a = x * y
                b = F.layer_norm(x, (4,), y)
            return a * z + b * z

        f = frameloom.jit(f, backend=backend) if jit is frameloom.jit else f
        with torch.inference_mode():
            y = torch.full((4,), 3.0)
        x, z = leaf(4), leaf(4)
        (g,) = torch.autograd.grad(f(x, y, z).sin().sum(), z, create_graph=True)
        g.sum().backward()
        return g.detach(), z.grad

    same_training(program)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, given):
        return given * 2


@pytest.mark.parametrize("backend", ["frameloom", "eager"])
def test_beside_a_number_of_which_the_graph_reads_nothing(backend):
    def program(jit):
        def f(x, z, n):
            n // 2
            Twice.apply(x)
            return torch.autograd.grad(z.sum(), z, create_graph=True)

        f = frameloom.jit(f, backend=backend) if jit is frameloom.jit else f
        return [f(leaf(4) * 2, leaf(4) * 3, n)[0].detach() for n in (0, 4, 5)]

    same_training(program, plain=None)


def test_a_result_that_leads_to_two_others_of_which_it_reads_one():
    def fn(x, y):
        double = y * 2
        chosen = torch.where(y > 2, y, double)
        (gradient,) = torch.autograd.grad((chosen**2).sum(), x, create_graph=True)
        return chosen + gradient, double

    def program(jit):
        x = torch.linspace(-1, 1, 3, requires_grad=True)
        first, second = jit(fn)(x, x * 0.5)
        (first.sum() + second.sum()).backward()
        return x.grad

    same_training(program)
