"""`x.requires_grad_()` inside the captured function, on a tensor that it is given: the caller sees it, too."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import frameloom
from tests import fresh
from tests.jit.gradients.training import caught, facts, leaf, same_training


def state(*tensors):
    return [(t.requires_grad, t.is_leaf, t.grad_fn is None, t.grad) for t in tensors]


def called(fn, make=lambda k: (torch.randn(4, 3),), calls=3, backward=True):
    """A program that calls `fn` with fresh tensors, and again with the same ones."""

    def program(jit):
        net = nn.Linear(3, 2)
        f, seen = jit(lambda *args: fn(net, *args)), []
        for k in range(calls):
            given = make(k)
            for _ in range(2):
                result = caught(f, *given)
                seen += [result, state(*given)]
                if backward and isinstance(result, torch.Tensor) and result.requires_grad:
                    net.zero_grad()
                    result.sum().backward()
                    seen += [*state(*given), [p.grad for p in net.parameters()]]
        return seen

    return program


def residual(net, x):
    x.requires_grad_()
    u = net(x).tanh()
    (du,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    (ddu,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
    return (du[:, 1] - ddu[:, 0] + u[:, 0] * du[:, 0]).square().mean()


def test_a_differential_equation():
    same_training(called(residual), graphs=2)
    assert not frameloom.stats()["breaks"]


def test_a_step_with_its_backward_pass():
    def step(net, x):
        loss = residual(net, x)
        loss.backward()
        return loss.detach()

    same_training(called(step))


def assigned(net, x):
    x.requires_grad = True
    return net(x)


def asked(net, x):
    was = x.requires_grad
    x.requires_grad_()
    y = net(x) * (2 if x.requires_grad and x.is_leaf and not was else 3)
    return y if x.grad is None else y * 5


def unused(net, x):
    x.requires_grad_()
    return net(torch.ones(3))


def alone(net, x):
    x.requires_grad_()


def used_before(net, x):
    y = x * 2
    x.requires_grad_()
    return net(x) + y[:, :2]


def seen_before(net, x):
    y = x[:, 1:]
    x.requires_grad_()
    return net(x) + y


def written_before(net, x):
    x.mul_(2)
    x.requires_grad_()
    return net(x)


def written_behind(net, x):
    x.requires_grad_()
    y = net(x)
    x.mul_(2)
    return y


def without_gradients(net, x):
    with torch.no_grad():
        x.requires_grad_()
        y = x * 2
    return net(x) + y[:, :2]


def with_a_break(net, x):
    x.requires_grad_()
    y = net(x)
    print(end="")
    return y * x.sum()


def broken_in_front(net, x):
    y = net(torch.ones(3))
    print(end="")
    x.requires_grad_()
    return y * x.sum()


def turned_off(net, x):
    x.requires_grad_()
    y = net(x)
    x.requires_grad_(False)
    return y


def of_an_alias(net, x):
    y = x.detach()
    x.requires_grad_()
    return net(x) + y[:, :2]


def unfrozen(net, x):
    net.weight.requires_grad_(False)
    y = net(x)
    net.weight.requires_grad_(True)
    return y + net(x * 2)


def returned(net, x):
    return x.requires_grad_()


def a_view_returned(net, x):
    x.requires_grad_()
    return x.view(-1)


FUNCTIONS = (
    assigned, asked, unused, alone, used_before, seen_before, written_before, written_behind, without_gradients, with_a_break, broken_in_front,
    turned_off, of_an_alias, unfrozen, returned, a_view_returned,
)  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_programs(fn):
    same_training(called(fn), plain=None)


def test_what_raises_in_front_and_behind():
    def fn(net, x, i, j):
        table = torch.ones(5, 2)
        y = table[i]
        x.requires_grad_()
        return net(x) + y + table[j]

    def make(k):
        return torch.randn(4, 3), torch.tensor(k % 2 * 7), torch.tensor(k // 2 * 7)

    same_training(called(fn, make, 4), plain=None)

    def behind(net, x, j):
        x.requires_grad_()
        return net(x) + torch.ones(5, 2)[j]

    same_training(called(behind, lambda k: (torch.randn(4, 3), torch.tensor(k * 7))), plain=None)


def test_integers():
    same_training(called(lambda net, x: x.requires_grad_(), lambda k: (torch.arange(3),)))


def test_one_tensor_twice():
    def fn(net, x, y):
        x.requires_grad_()
        return net(x) * y.sum()

    def make(k):
        x = torch.randn(4, 3)
        return (x, x) if k else (x, torch.randn(3))

    same_training(called(fn, make))


def test_a_view_beside_it():
    def fn(net, x, y):
        x.requires_grad_()
        return net(x) * y.sum()

    def make(k):
        x = torch.randn(4, 3)
        return (x[:2], x) if k else (x, x[1])

    same_training(called(fn, make))


def test_a_call_that_starts_anew():
    def fn(net, x):
        was = x.requires_grad
        x.requires_grad_()
        y = F.dropout(net(x), 0.2)
        if torch.rand([]) < 0.2:
            return y * 3 if was else y
        return y * 2

    same_training(called(fn, calls=10))


def test_forces():
    def fn(net, x):
        x.requires_grad_(True)
        d = (x[:, None] - x[None]).square().sum(-1)
        energy = (net.weight.sum() * torch.exp(-d)).sum()
        return -torch.autograd.grad(energy, x)[0]

    same_training(called(fn), graphs=2)


def test_a_penalty_outside():
    def program(jit):
        net = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1))
        f, seen = jit(lambda x: net(x.requires_grad_())), []
        for _ in range(3):
            x = torch.randn(4, 3)
            y = f(x)
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            net.zero_grad()
            (g.norm(dim=1) - 1).square().mean().backward()
            seen += [facts(y, x, g), [p.grad for p in net.parameters()]]
        return seen

    same_training(program)


def test_one_that_is_made_none():
    def fn(x, y):
        v = y * 2
        x.detach_()
        return v + x

    def program(jit):
        f, seen = jit(fn), []
        for k in range(2):
            x, y = leaf(3), leaf(3)
            given = x * 2 if k else x
            f(given, y).sum().backward()
            seen += facts(given, x, y)
        return seen

    same_training(program)


def test_gradients_of_what_lies_behind_a_history():
    def fn(y, w, u):
        return torch.autograd.grad((y * u).sum(), [w, u], allow_unused=True)

    def program(jit):
        f = jit(fn)
        w, u = leaf(3), leaf(3)
        return [f(w * 2, w, u) for _ in range(2)]

    same_training(program)


@pytest.mark.parametrize("view", ["t", "first", "same"])
def test_views_without_gradients_of_leaves_that_are_views(view):
    """They ask the tensor behind the leaf whether they require a gradient."""

    def fn(x):
        with torch.no_grad():
            v = {"t": lambda: x.t(), "first": lambda: x[0], "same": lambda: x.view_as(x)}[view]()
            asked = v.requires_grad, (v * 2).requires_grad
        return v, asked

    def program(jit):
        f, seen = jit(fn), []
        for _ in range(2):
            for x in (leaf(3, 4), torch.ones(5, 4)[:3].requires_grad_(), leaf(3, 4) * 2):
                v, asked = f(x)
                seen += [v.requires_grad, v.is_leaf, asked, v.detach()]
        return seen

    same_training(program, plain=None)


@torch.no_grad()
def test_views_without_gradients_that_are_written():
    def fn(x):
        v = x.view(-1)
        v.div_(2)
        q = abs(v)
        q.mul_(3)
        w = v[0:2]
        w.add_(1)
        return q, w, v // 2

    def program(jit):
        f, seen = jit(fn), []
        for _ in range(2):
            for x in (leaf(3, 4), leaf(3, 4) * 2):
                seen += [f(x), x.detach()]
        return [[t.detach() for t in s] if isinstance(s, tuple) else s for s in seen]

    same_training(program, plain=None)


@torch.no_grad()
def test_views_without_gradients_that_are_made_leaves():
    def fn(x):
        v = x.t()
        v.requires_grad_()
        return v, v * 2

    def program(jit):
        f, seen = jit(fn), []
        for x in (leaf(3, 4), leaf(2, 2)):
            v, w = f(x)
            v.sum().backward()
            seen += [w, v.grad, x.grad]
        return seen

    same_training(program, plain=None)


def a_view_without_history(history=False):
    x = leaf(4) * 2 if history else leaf(4)
    with torch.no_grad():
        return x, x.view(2, 2)


def a_view_that_is_a_leaf():
    x = torch.ones(4)
    v = x.view(2, 2).requires_grad_()
    return x.requires_grad_(), v


def gone_back(x, v):
    (v * v).sum().backward()
    return v.grad


def gone_back_with_its_base(x, v):
    (v * v * x.view(2, 2)).sum().backward()
    return v.grad


def gradient(x, v):
    return torch.autograd.grad((v * v).sum(), v, allow_unused=True)[0]


def gradient_that_is_none(x, v):
    return torch.autograd.grad((v * v).sum(), v)[0]


def made_a_leaf(x, v):
    return v.requires_grad_() * 2


def made_a_leaf_here(x, v):
    with torch.no_grad():
        v = x.view(2, 2)
    return v.requires_grad_() * 2


def gradient_of_one_made_here(x, v):
    with torch.no_grad():
        v = x.view(2, 2)
    return torch.autograd.grad((v * v).sum(), v, allow_unused=True)[0]


@pytest.mark.parametrize(
    "fn",
    [
        gone_back, gone_back_with_its_base, gradient, gradient_that_is_none, made_a_leaf, made_a_leaf_here, gradient_of_one_made_here,
    ],
)  # fmt: skip
def test_a_view_says_that_it_is_a_leaf_only_because_its_base_is(fn):
    """A guard tells it from those that gradients are added up in."""

    def program(jit):
        f, seen = jit(fn), []
        for make in (a_view_that_is_a_leaf, a_view_without_history, lambda: a_view_without_history(True)) * 2:  # fmt: skip
            x, v = make()
            y = caught(f, x, v)
            if isinstance(y, torch.Tensor) and y.requires_grad:
                y.sum().backward()
            seen += [y, *facts(v), x.is_leaf and x.grad]
        return seen

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the gradient of what is no leaf
        same_training(program, plain=None)


LOOKED_AT = {
    "": lambda x, z, w: z.add_(1),
    "in front": lambda x, z, w: (x.add_(w), z.sigmoid_())[1],
    "read": lambda x, z, w: (z * 2, z.add_(1))[1],
    "that it is to require gradients": lambda x, z, w: z.requires_grad_() * 2,
    "to write, then": lambda x, z, w: z.requires_grad_().add_(1),
    "without gradients": lambda x, z, w: torch.no_grad()(z.add_)(1) * 2,
    "in front of a change": lambda x, z, w: (z.add_(1), x.set_(w.exp()), z + 1)[2],
}


@pytest.mark.parametrize("given", [["now"], ["before"], ["looked at", "before"]])
@pytest.mark.parametrize("fn", LOOKED_AT.values(), ids=LOOKED_AT)
def test_a_view_whose_base_got_a_history_is_a_leaf_until_somebody_looks(fn, given):
    def seen(side):
        found = []
        for when in given * 2:
            x, w = torch.ones(3, 4), torch.full((3, 4), 2.0, requires_grad=True)
            z = x.t() if when != "now" else None
            x.mul_(w)
            z = x.t() if z is None else z
            assert when != "looked at" or not z.is_leaf
            for _ in range(2):
                found += [caught(side, x, z, w), z.requires_grad, x._version]
                found.append(torch.ops.aten.is_leaf.default(z))  # does not look
        return [(t.tolist(), t.grad_fn is None) if torch.is_tensor(t) else t for t in found]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of calls that run as plain Python
        assert seen(frameloom.jit(fn)) == seen(fn)


def test_hooks_of_saved_tensors_see_nothing_of_how_tensors_are_looked_at():
    text = """
import torch
seen = []
with torch.autograd.graph.saved_tensors_hooks(seen.append, lambda t: t):
    import frameloom
    frameloom.jit(lambda x: x + 1)(torch.ones(3))
print(seen)
"""
    assert fresh.run(text, check=True).stdout.strip() == "[]"
