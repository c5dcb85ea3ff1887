"""What goes into compiled calls that need gradients: tensors that are changed, flags that change, statistics, random numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

CHANGES = {
    "a leaf": lambda x, w, b: (w.mul_(2), x @ w)[1],
    "a view of a leaf": lambda x, w, b: (w[0].mul_(2), x @ w)[1],
    "a leaf without gradient mode": lambda x, w, b: _unseen(lambda: w.mul_(2)) or x @ w,
    "a leaf without gradient mode, afterwards": lambda x, w, b: (
        x @ w,
        _unseen(lambda: w.mul_(2)),
    )[0],
    "a detached leaf": lambda x, w, b: (w.detach().mul_(2), x @ w)[1],
    "a tensor that gets a history": lambda x, w, b: (x.mul_(w[:4]), x @ w)[1],
    "a tensor that gets a history and is not used": lambda x, w, b: (b.copy_(w[0]), torch.ones(3))[
        1
    ],
    "a part of a tensor that gets a history": lambda x, w, b: (b[1:3].copy_(w[0, :2]), x @ w)[1],
    "a tensor that is read before": lambda x, w, b: (x @ w + b, b.add_(1))[0],
    "a tensor that is read after": lambda x, w, b: (b.add_(1), x @ w + b)[1],
    "a tensor that gradients need": lambda x, w, b: ((x @ w) * b, b.add_(1))[0],
    "a tensor that gradients need, before": lambda x, w, b: (b.add_(1), (x @ w) * b)[1],
    "a tensor that gradients need, before and after": lambda x, w, b: (
        y := b.sin(),
        b.mul_(2),
        (h := x @ w) * y + h.sin() * b,
    )[2],
    "a tensor, and a view of it comes out": lambda x, w, b: (b.add_(1), b[2:], x @ w)[1:],
}


def _unseen(fn):
    with torch.no_grad():
        fn()


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changes(name, history):
    def program(jit):
        f = jit(CHANGES[name])
        seen = []
        for _ in range(2):
            x, w, b = torch.randn(4, 8), leaf(8, 8), torch.randn(8)
            given = w * 1 if history else w
            out = caught(f, x, given, b)
            outs = out if isinstance(out, tuple) else (out,)
            outs = [o for o in outs if isinstance(o, torch.Tensor)]
            seen.append((out, facts(*outs, x, given, b), [x._version, given._version, b._version]))
            for o in outs:
                if o.requires_grad:
                    seen.append(caught(o.sum().backward))
            seen.append(facts(w))
        return seen

    same_training(program, plain=None)


@pytest.mark.parametrize("first", [True, False])
def test_requires_grad_that_changes(first):
    def program(jit):
        f = jit(lambda x, w, b: torch.tanh(x @ w) + b)
        x, w, b = torch.randn(4, 8), leaf(8, 8), leaf(8)
        seen = []
        flags_of_calls = [(True, True), (False, True), (True, False), (False, False), (True, True)]
        for flags in flags_of_calls if first else [(False, False), *flags_of_calls]:
            w.grad = b.grad = None
            w.requires_grad, b.requires_grad = flags
            out = f(x, w, b)
            if out.requires_grad:
                out.sum().backward()
            seen.append(facts(out, w, b))
        return seen

    same_training(program)


def test_requires_grad_set_inside():
    def program(jit):
        @jit
        def f(x, w):
            y = torch.zeros(8).requires_grad_()
            z = x.detach().requires_grad_(True)
            t = torch.ones(8, requires_grad=True)
            return y * w, y, (z * 2).sum(), z, t, t * 3

        x, w = torch.randn(8), leaf(8)
        for _ in range(2):
            outs = f(x, w)
            (outs[0].sum() + outs[2] + outs[5].sum()).backward()
        return facts(*outs, w)

    same_training(program, plain=None)


def test_one_tensor_under_two_names():
    def program(jit):
        f = jit(lambda a, b: (a * b).exp())
        w, v = leaf(3), leaf(3)
        for a, b in [(w, w), (w, v), (w, w), (w, w[:]), (w, w.detach())]:
            f(a, b).sum().backward()
        return facts(w, v)

    same_training(program)


def test_running_statistics():
    def program(jit):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        jit(model)
        x = torch.randn(2, 3, 6, 6)
        for _ in range(3):
            model(x).square().mean().backward()
        model.eval()
        model(x).square().mean().backward()
        return [p.grad for p in model.parameters()], list(model.buffers())

    same_training(program, rtol=1e-4)


def test_dropout_draws_what_eager_draws():
    def program(jit):
        f = jit(lambda x, w: F.dropout(F.gelu(F.dropout(x @ w, 0.3)), 0.5))
        x, w = torch.randn(16, 8), leaf(8, 8)
        for _ in range(3):
            out = f(x, w)
            out.sum().backward()
        return facts(out, w)

    same_training(program)


def test_a_random_leaf():
    def program(jit):
        f = jit(lambda mean, scale: mean + scale.exp() * torch.randn_like(mean))
        mean, scale = leaf(8), leaf(8)
        for _ in range(2):
            f(mean, scale).square().sum().backward()
        return facts(mean, scale)

    same_training(program)


def test_a_moving_average():
    def program(jit):
        @jit
        def f(x, w, average):
            y = x @ w
            with torch.no_grad():
                average.mul_(0.9).add_(y.mean(0), alpha=0.1)
            return (y - average).square().sum()

        x, w, average = torch.randn(4, 8), leaf(8, 8), torch.zeros(8)
        for _ in range(3):
            f(x, w, average).backward()
        return facts(w, average), average._version > 0

    same_training(program, plain=None)


def test_running_statistics_change_behind_an_evaluation():
    """Autograd does not know of what batch norms write: a backward pass behind it takes the new numbers, as in eager."""
    gradients = []
    for make in (lambda f: f, frameloom.jit):
        norm, x = torch.nn.BatchNorm1d(3), torch.arange(12.0).view(4, 3).requires_grad_()
        f = make(lambda x: norm(x))
        norm.eval()
        first = f(x)
        norm.train()
        (first * f(x)).sum().backward()
        gradients.append((x.grad, norm.running_mean._version))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_gradient_for_what_is_computed_inside_where_hooks_wait():
    def fn(x):
        t = x.exp()
        return torch.autograd.grad(t.sin().sum(), t)

    def program(jit):
        x = leaf(3) * 1
        x.register_hook(lambda g: g * 2)
        return jit(fn)(x)

    same_training(program, plain=None)


@pytest.mark.parametrize(
    "shapes",
    [
        ((), (2,), ()),
        ((3, 1), (3, 2), (3, 1)),
        ((2,), (2,), (2,)),
        ((), (), (2,)),
        ((1,), (), (2, 1)),
    ],
)
@pytest.mark.parametrize("needs", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])
def test_clamping_by_tensors_of_other_shapes(shapes, needs):
    """PyTorch's derivatives write in place, and raise where that does not fit."""

    def program(jit):
        given = [torch.ones(s, requires_grad=bool(n)) for s, n in zip(shapes, needs, strict=True)]
        y = jit(lambda *given: torch.clamp(*given))(*given)
        return caught(y.sum().backward), *facts(*given)

    same_training(program, plain=None)


@pytest.mark.filterwarnings("ignore:.*plain Python")
@pytest.mark.parametrize(
    "fn",
    [
        lambda z: z + 1,
        lambda z: z.add_(1),
        lambda z: (z.float() + 1).tolist(),
        lambda z: (z.requires_grad, z.shape, z.is_leaf),
        lambda z: z.detach() + 1,
    ],
)
def test_ints_with_a_history(fn):
    """Autograd gives them one where a part is written that has one."""
    seen = []
    for side in (fn, frameloom.jit(fn)):
        z = torch.zeros(3, dtype=torch.int8)
        z[0] = torch.ones((), requires_grad=True)
        seen.append((caught(side, z), z._version))
    assert str(seen[1]) == str(seen[0])


@pytest.mark.parametrize("dynamic", [None, True])
def test_requires_grad_by_an_argument(dynamic):
    def program(jit):
        weight = nn.Parameter(torch.ones(2))

        def fn(x, flag):
            weight.requires_grad_(flag)
            made = (x * 2).requires_grad_(flag)
            return made, made.requires_grad

        f = jit(fn) if dynamic is None or jit is not frameloom.jit else jit(fn, dynamic=True)
        return [(f(torch.ones(2), on), weight.requires_grad) for on in (False, True, False, True)]

    same_training(program, plain=None)


TURNED_ON = {
    "both are read": lambda y, z: (y.requires_grad_(), z * y)[1:],
    "asked alone": lambda y, z: (y.requires_grad_(), y * 2, z.requires_grad)[1:],
    "asked twice": lambda y, z: (z.requires_grad, y.requires_grad_() * 2, z.requires_grad),
    "its history": lambda y, z: (y.requires_grad_() * 2, z.grad_fn, z.is_leaf),
}
GIVEN = {
    "a view": lambda: (y := torch.ones(4), y.t()),
    "a part": lambda: (y := torch.ones(4), y[:]),
    "itself": lambda: (y := torch.ones(4), y),
    "its base": lambda: (y := torch.ones(4), y[:])[::-1],
    "detached": lambda: (y := torch.ones(4), y.detach()),
    "another": lambda: (torch.ones(4), torch.ones(4)),
}


@pytest.mark.parametrize("name", TURNED_ON)
def test_views_of_what_is_made_to_require_gradients(name):
    """Those that were made before do, too."""

    def program(jit):
        seen = []
        for first in GIVEN:
            for then in GIVEN:
                f = jit(TURNED_ON[name])
                for given in (first, then):
                    y, z = GIVEN[given]()
                    made = f(y, z)
                    out = next(t for t in made if isinstance(t, torch.Tensor))
                    out.sum().backward()
                    seen.append((made, y.grad, z.grad))
        return seen

    same_training(program, plain=None)


def test_a_gradient_that_raises_and_that_nobody_asks_for():
    """`index_add` of nothing has a gradient; the one of what is added to it does not."""

    def fn(x, y):
        return x.index_add(0, torch.tensor([0]), y[:1]).sum()

    def program(jit):
        x, y = torch.ones(0, 5, requires_grad=True), leaf(3, 5) * 2
        loss = jit(fn)(x, y)
        asked = torch.autograd.grad(loss, x, retain_graph=True)
        return asked, type(caught(torch.autograd.grad, loss, y))

    same_training(program)
