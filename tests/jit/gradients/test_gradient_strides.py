"""Strides of gradients are eager's, in whatever layout the gradient of the result comes."""

import pytest
import torch

import frameloom
from frameloom import pipeline
from tests.fuzz.interpret import interpreted
from tests.jit.gradients.training import leaf, same_training
from tests.sweeps.gradients import SHAPES, TABLE, differences

SOME = [
    "x * 2", "x + w", "relu", "softplus", "used twice", "with a row", "ldexp", "maximum", "transposed", "flat", "flat behind", "cat",
    "expanded one", "mean", "softmax", "matmul", "layer_norm", "batch_norm", "mse", "mlp",
]  # fmt: skip
LAYOUTS = ["contiguous", "expanded", "permuted", "as the result", "gaps"]


@pytest.mark.parametrize("name", SOME)
def test_layouts_of_gradients_that_come(name):
    """`python -m tests.sweeps gradients` has more of each."""
    with interpreted():
        for shape in SHAPES[0], SHAPES[5]:
            for lies in "contiguous", "transposed":
                assert not [*differences(TABLE[name], shape, lies, LAYOUTS, False)], (shape, lies)
        assert not [*differences(TABLE[name], SHAPES[0], "contiguous", LAYOUTS[:3], True)]


@pytest.mark.parametrize("shape", [(2, 3), (3, 1), (1, 1), (0, 3)])
def test_expanded_gradients_of_transposed_results(shape):
    def program(jit):
        f = jit(lambda x: (x * 2).t())
        x = leaf(*shape)
        inner = x + 0
        inner.retain_grad()
        f(inner).sum().backward()
        return inner.grad, x.grad, torch.autograd.grad(f(x).sum(), x)

    same_training(program, plain=None)


def test_plans_for_layouts_that_make_a_difference(monkeypatch):
    compiled = []
    own = pipeline._BackwardHalf.compile
    monkeypatch.setattr(
        pipeline._BackwardHalf, "compile", lambda *args: compiled.append(0) or own(*args)
    )
    f = frameloom.jit(lambda x, w: torch.tanh(x @ w))
    x, w = leaf(3, 4), leaf(4, 3)
    for _ in range(2):
        f(x, w).sum().backward()
        f(x, w).backward(torch.ones(3, 3))
        f(x, w).backward(torch.ones(3, 3).t())
    assert len(compiled) == 1
    g = frameloom.jit(lambda x: x.t() * 2)
    for _ in range(3):
        torch.autograd.grad(g(x).sum(), x)  # always the same
    assert len(compiled) == 2
    for _ in range(2):
        for given in torch.ones(4, 3), torch.ones(3, 4).t(), torch.ones(()).expand(4, 3):
            (made,) = torch.autograd.grad(g(x), x, given)
            (wanted,) = torch.autograd.grad(x.t() * 2, x, given)
            assert made.stride() == wanted.stride()
    assert len(compiled) == 4


@pytest.mark.parametrize("laid", [(1, 1), (0, 1), (0, 0)])
@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (4, 3)])
def test_gradients_of_leaves_that_overlap(shape, laid):
    """Whether such a leaf keeps its gradient depends on which of its sizes are 1."""

    def program(jit):
        @jit
        def f(x):
            (x.movedim(0, 1) * 1).sum().backward()

        f(leaf(2, 3))
        x = torch.ones(12).as_strided(shape, laid).requires_grad_()
        f(x)
        return x.grad.stride(), x.grad.sum()

    same_training(program, plain=None)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
        (torch.float32, torch.int64),
    ],
)
def test_ldexp_of_two_dtypes(a, b):
    f = frameloom.jit(lambda x, e: torch.ldexp(x, e))
    for x in torch.ones(4, 3, dtype=a).t(), torch.ones((), dtype=a).expand(3, 4):
        for e in torch.ones(3, 2, 4, dtype=b)[:, 0], torch.ones(4, 3, dtype=b).t():
            assert f(x, e).stride() == torch.ldexp(x, e).stride()


WRITTEN = {
    "piece": lambda x: (lambda t: (t.unsqueeze(0)[0].add_(t), t)[1])(x * 1),
    "view": lambda x: (lambda t: (t.t().reshape(-1, 2, 1)[..., 0].mul_(2), t)[1])(x * 1),
    "rows": lambda x: (lambda t: (t[None, 1:].squeeze(0).mul_(3), t)[1])(x * 1),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_gradients_that_lie_otherwise_of_what_is_written_through_views(name):
    """Copies before views, which other layouts need not, are left out with the views' own layouts."""
    fn = WRITTEN[name]
    found = []
    for side in (fn, frameloom.jit(fn)):
        x = torch.arange(8.0).view(2, 4).t().requires_grad_()
        (side(x) * torch.linspace(-1, 1, 8).view(4, 2)).sum().backward()
        found.append((x.grad.tolist(), x.grad.stride()))
    assert found[0] == found[1]


READ_AGAIN = {
    "as it comes": lambda x: x,
    "a transposed view": lambda x: (x * 2).t(),
    "another shape": lambda x: (x + 1).reshape(-1),
    "a copy": lambda x: torch.relu(x.t() * 2),
}


@pytest.mark.parametrize("name", READ_AGAIN)
def test_what_is_left_of_a_sum_of_gradients_lies_as_it_does_alone(name):
    """Autograd adds nothing where one of two results gets no gradient."""

    def fn(x):
        y = READ_AGAIN[name](x)
        return y.sum(), y * 2, y.t() * 3 if y.dim() > 1 else y * 3

    for shape in (3, 4), (1, 4):
        found = []
        for side in (fn, frameloom.jit(fn)):
            for k in range(3):
                x = torch.linspace(-1, 1, shape[0] * shape[1]).view(shape).requires_grad_()
                (made,) = torch.autograd.grad(side(x)[k].sum(), x)
                found.append((made.stride(), made.tolist()))
        assert found[:3] == found[3:]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.bfloat16])
def test_a_gradient_of_one_element_that_is_copied_lies_as_its_leaf(dtype, backend):
    """One that a sum has repeated has a stride of 0, with which AccumulateGrad does not keep it."""

    def fn(x):
        x.real.float().sum().backward()

    def of_floats(x):
        x.float().sum().backward()

    found = []
    for program in fn, of_floats:
        for side in (program, frameloom.jit(program, backend=backend)):
            for x in torch.ones(1, dtype=dtype), torch.ones(4, 1, dtype=dtype).t()[:, :1]:
                side(x.requires_grad_())
                found.append((x.grad.stride(), x.grad.tolist()))
    assert found[:2] == found[2:4] and found[4:6] == found[6:]


ADDED = {
    "transposed": lambda x, y: x.t() * 2,
    "stack": lambda x, y: torch.stack([x.t(), y]).exp(),
    "linear": lambda x, y: torch.nn.functional.linear(y.expand(5, 5), x),
    "softmax": lambda x, y: x.t().softmax(0),
    "written": lambda x, y: torch.empty_like(x.t()).copy_(x.t()).unsqueeze(0).mul_(2),
}


@pytest.mark.parametrize("name", ADDED)
def test_gradients_that_autograd_adds_to_others(name):
    """It adds in place to what is no view: the sum lies as that then, and as both do else, which differs for sizes of 1."""

    def program(jit):
        f = jit(ADDED[name])
        found = []
        for other in "view", "alone", "again":
            for x in leaf(1, 5), leaf(5, 1).detach().t().requires_grad_():
                y = leaf(5, 1)
                before = x[1:] if other == "view" else f(x, y) if other == "again" else y * 0
                given = torch.ones(f(x, y).shape)
                torch.autograd.backward([before.sum(), f(x, y)], [None, given])
                found += x.grad, y.grad
        return found

    same_training(program, plain=None)


HANDED_ON = {
    "before": lambda x, y: (x * 3 + y) * 1.5,
    "behind": lambda x, y: (y * 3 + x) * 1.5,
    "both leaves": lambda x, y: (x + y) * 1.5,
    "scaled": lambda x, y: torch.add(y, x, alpha=2) * 1.5,
    "scaled before": lambda x, y: torch.add(y + 3, x, alpha=2) * 1.5,
    "twice": lambda x, y: (x * 3 + y) * 1.5 + y,
    "as it comes": lambda x, y: x * 3 + y,
    "two results": lambda x, y: (x * 3 + y, x + 5),
    "as a view": lambda x, y: (x.sin() + y.t()).exp(),
    "expanded": lambda x, y: (x.sin() + y.expand(1, 1, 3)).exp(),
    "by another": lambda x, y: (x * 3 + (y + 0)) * 1.5,
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_gradients_that_other_nodes_are_still_to_read(name):
    """A leaf takes a gradient that nobody else holds, and copies another one into its own layout."""

    def program(jit):
        f = jit(HANDED_ON[name])
        found = []
        for sizes in (1, 1), (1, 3), (3, 1):
            for given in False, True:
                x, y = (torch.rand(3, 4, 5)[:n, :m, 0].detach() for n, m in (sizes, sizes))
                results = f(x.requires_grad_(), y.requires_grad_())
                results = results if isinstance(results, tuple) else (results,)
                tangents = [torch.ones(r.shape) if given else None for r in results]
                torch.autograd.backward([r if given else r.sum() for r in results], tangents)
                found += x.grad, y.grad
        return found

    same_training(program, plain=None)


def test_a_gradient_that_is_handed_on_permuted():
    """Its elements keep their places, whichever way it comes to lie."""

    def program(jit):
        found = []
        for permuted in False, True:
            f = jit(lambda x, y, w: (x * 3 + y).mT @ w if permuted else (x * 3 + y) * w)
            for given in False, True, False:
                x, y, w, gradient = (torch.rand(4, 3, 3)[:1].detach() for _ in range(4))
                y = y.as_strided((1, 3, 3), (2, 3, 1)).detach()
                result = f(x.requires_grad_(), y.requires_grad_(), w)
                result.backward(gradient.mT if given else gradient)
                found += x.grad, y.grad
        return found

    same_training(program, plain=None)


def test_a_sum_of_which_a_part_is_missing():
    """Autograd adds to the first summand in place, if that is no view: the sum lies as it does."""

    def program(jit):
        f, seen = jit(lambda x: (torch.einsum("ij,kj->ik", x, x), x + 50)), []
        for k in (0, 1, 0):
            x = leaf(1, 4)
            f(x)[k].sum().backward()
            seen.append(x.grad.stride())
        return seen

    same_training(program)
