"""Hooks that watch or change gradients, around compiled calls: called as often, in the same order, with the same values."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.jit.gradients.training import facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


def test_hooks_of_inputs_and_outputs():
    def program(jit):
        f = jit(lambda x, w, b: torch.tanh(x @ w + b))
        x, w, b = leaf(4, 8), leaf(8, 8), leaf(8)
        seen = []
        for _ in range(2):
            f(x, w, b).sum().backward()
        handles = [
            w.register_hook(lambda g: seen.append(("w", g.clone()))),
            b.register_hook(lambda g: g * 2),
            w.register_post_accumulate_grad_hook(lambda p: seen.append(("post", p.grad.clone()))),
        ]
        for k in range(4):
            h = x * 2
            h.register_hook(lambda g: seen.append(("h", g.clone())) or g * 3)
            out = f(h, w, b)
            out.register_hook(lambda g: seen.append(("out", g.clone())) or g * 0.5)
            out.retain_grad()
            out.grad_fn.register_hook(lambda *a: seen.append(("node", len(a))))
            out.sum().backward()
            seen.append(facts(x, w, b, out))
            if k == 1:
                for handle in handles:
                    handle.remove()
        return seen

    same_training(program)


def test_hooks_are_not_called_where_nothing_flows():
    def program(jit):
        f = jit(lambda v, b: ((v * v).exp(), b * 2))
        v, b = leaf(8), leaf(8)
        seen = []
        for hooked in (False, True, True, False):
            handles = []
            if hooked:
                handles.append(b.register_hook(lambda g: seen.append(g.clone())))
                handles.append(b.register_post_accumulate_grad_hook(lambda p: seen.append("post")))
            for k in (0, 1):
                f(v, b)[k].sum().backward()
            for handle in handles:
                handle.remove()
            seen.append(facts(v, b))
        return seen

    same_training(program)


def test_hooks_set_inside():
    def program(jit):
        seen = []

        @jit
        def f(x, w):
            y = x @ w
            y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
            z = y.tanh()
            z.retain_grad()
            return z.sin(), z

        x, w = torch.randn(4, 8), leaf(8, 8)
        for _ in range(2):
            out, z = f(x, w)
            out.sum().backward()
            seen.append((z.grad, facts(w)))
        return seen

    same_training(program, plain=None)


@pytest.mark.parametrize("inner", [False, True])
def test_hooks_of_modules(inner):
    def program(jit):
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        jit(model)
        seen = []
        hooked = model[1] if inner else model
        x = torch.randn(4, 8)
        for k in range(6):
            if k == 2:
                handles = [
                    hooked.register_full_backward_hook(
                        lambda m, gi, go: seen.append([facts(*gi), facts(*go)])
                    ),
                    hooked.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)),
                    hooked.register_forward_hook(lambda m, a, out: out * 3),
                ]
            if k == 4:
                for handle in handles:
                    handle.remove()
            model(x).square().sum().backward()
            seen.append([p.grad.clone() for p in model.parameters()])
        return seen

    same_training(program, plain=None)


def test_an_optimizer_in_hooks():
    def program(jit):
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        jit(model)
        steps = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def hook(p):
            steps[p].step()
            steps[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(hook)
        losses = []
        for _ in range(4):
            loss = model(torch.ones(4, 8)).square().mean()
            loss.backward()
            losses.append(loss.item())
        return losses

    same_training(program, plain=None)


@pytest.mark.parametrize("count", [1, 2, 5, 12])
@pytest.mark.parametrize("given", ["data", "leaf", "made"])
@pytest.mark.parametrize("kind", ["tensor", "accumulated"])
def test_hooks_of_parameters_are_called_in_the_order_of_eager(kind, given, count):
    def program(jit):
        model = nn.Sequential(
            *[nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(count)]
        )
        seen = []
        for k, p in enumerate(model.parameters()):
            if kind == "tensor":
                p.register_hook(lambda g, k=k: seen.append(k))
            else:
                p.register_post_accumulate_grad_hook(lambda p, k=k: seen.append(k))
        f = jit(model)
        for _ in range(2):
            x = {"data": torch.randn(2, 4), "leaf": leaf(2, 4), "made": leaf(2, 4) * 2}[given]
            f(x).sum().backward()
        return [torch.tensor(seen)]

    same_training(program)


@pytest.mark.parametrize("made", ["computed", "written", "split", "in a loop"])
@pytest.mark.parametrize("kept", [False, True])
def test_hooks_of_what_more_was_computed_from(made, kept):
    def hook(v):
        if kept:
            v.retain_grad()
        v.register_hook(lambda g: g * 0.5)

    def fn(x, w):
        v = x @ w
        if made == "written":
            v.relu_()
        if made == "in a loop":
            for _ in range(2):
                v = (v * v).sin()
                hook(v)
        h = v.chunk(2)[0] if made == "split" else v
        z = h * h
        hook(h)
        return z, h, v

    def program(jit):
        f, x, w = jit(fn), leaf(4, 3), leaf(3, 3)
        seen = []
        for _ in range(2):
            z, h, v = f(x, w)
            (z.sum() + v.sum()).backward()
            seen.append(facts(x, w) + ([h.grad] if kept else []))
        return seen

    same_training(program)


def test_hooks_of_what_no_result_needs():
    def fn(x, y):
        v = y * y
        v.register_hook(lambda g: g * 2)
        return x * 2, v

    def program(jit):
        x, y = leaf(3), leaf(3)
        jit(fn)(x, y)[0].sum().backward()
        return facts(x, y)

    same_training(program)


@pytest.mark.parametrize("kind", ["hook", "retained", "of a parameter"])
def test_hooks_and_gradients_that_have_gradients(kind):
    def program(jit):
        a, w, seen = leaf(3), leaf(3), []
        f = jit(lambda x: (x * w).sin())
        x = a * 1.5
        if kind == "retained":
            x.retain_grad()
        else:
            (x if kind == "hook" else w).register_hook(lambda g: (seen.append(g), g * 2)[1])
        made = torch.autograd.grad(f(x).sum(), [x, a, w], create_graph=True)
        return made, torch.autograd.grad(sum((g * g).sum() for g in made), [a, w]), seen

    same_training(program)


def test_hooks_of_inputs_and_a_result_that_was_written():
    def fn(x, y):
        v = torch.empty_like(x)
        v.copy_(x * 2)
        return y * 2, v

    def program(jit):
        f, a, y = jit(fn), leaf(3), leaf(3)
        x = a * 1.5
        x.register_hook(lambda g: g * 0.5)
        for _ in range(2):
            z, v = f(x, y)
            (z.sum() + v.sum()).backward(retain_graph=True)
        return facts(z, v, a, y)

    same_training(program)


@pytest.mark.parametrize("hooked", range(3))
@pytest.mark.parametrize("back", range(3))
def test_hooks_of_results_from_which_no_gradient_comes(hooked, back):
    def program(jit):
        x, seen = leaf(2), []
        results = jit(lambda x: ((y := x * 2), y.sin(), x.exp()))(x)
        results[hooked].register_hook(lambda g: seen.append(g) or g * 2)
        handle = results[hooked].register_hook(seen.append)
        results[back].sum().backward(retain_graph=True)
        handle.remove()
        results[back].sum().backward()
        return x.grad, seen

    same_training(program)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("written", range(3))
def test_results_that_retain_gradients_and_are_written(written, dtype):
    def program(jit):
        x = torch.linspace(0.1, 1, 4).to(dtype).requires_grad_()
        results = jit(lambda x: (x.detach() * 2, x.cos(), x.sin(), x.exp()))(x)[1:]
        for result in results:
            result.retain_grad()
        results[written].mul_(2)
        sum(r.abs().sum() for r in results).backward()
        return [(r.grad, r._version, r._is_view()) for r in results], x.grad

    same_training(program)


def test_hooks_of_results_are_called_in_the_order_of_the_program():
    def fn(x):
        a, b, c = x.sin(), x.cos(), x.exp()
        d = a * 2
        return c, a, c * 3, b, d

    def program(jit):
        x, seen = leaf(3), []
        results = jit(fn)(x)
        for name, result in enumerate(results):
            result.register_hook(lambda g, name=name: seen.append((name, g)))
        sum(results).sum().backward(retain_graph=True)
        # Not those of what is not named.
        c, a, e, b, d = results
        return seen, torch.autograd.grad((a + b + c + d + e).sum(), [c, a]), x.grad

    same_training(program)


@pytest.mark.parametrize("name", ["register_prehook", "register_hook"])
def test_hooks_of_nodes_see_what_comes_from_other_results(name):
    def program(jit):
        x, seen = leaf(3), []
        first, second = jit(lambda x: ((a := x.sin()), a.exp() * x))(x)
        hook = getattr(first.grad_fn, name)(lambda *given: seen.append(given[-1]))
        (first + second).sum().backward(retain_graph=True)
        hook.remove()
        (first + second).sum().backward()
        return seen, x.grad

    same_training(program)


TWO = {
    "product": lambda a, b: a * b,
    "matrix product": lambda a, b: a @ b,
    "sum": lambda a, b: a + b,
    "layer": lambda a, b: F.linear(a, b, a[0]),
    "stack": lambda a, b: torch.stack([b, a]).sum(0),
    "choice": lambda a, b: torch.where(a > 0.7, a, b),
    "norm": lambda a, b: F.layer_norm(a, (2,), b[0], b[1]),
    "transposed": lambda a, b: a.t() - b.sin(),
    "itself": lambda a, b: a,
}


@pytest.mark.parametrize("outer", TWO)
def test_gradients_that_one_node_has_ready_come_in_its_order(outer):
    def program(jit):
        seen = []
        for inner in TWO:
            f = jit(lambda a, b, c, inner=inner: TWO[outer](c, TWO[inner](b, a)))
            leaves = [leaf(2, 2) for _ in range(3)]
            for k, x in enumerate(leaves):
                x.register_post_accumulate_grad_hook(lambda x, k=k: seen.append(k))
            f(*leaves).sum().backward()
            seen.append(inner)
        return seen

    same_training(program, plain=None)
