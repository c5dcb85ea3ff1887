"""Checkpointed regions and budgets of memory: what is saved, what is computed again, and when that is left to plain PyTorch."""

import copy
import dataclasses
import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import frameloom
from frameloom import debug
from tests.jit.gradients.training import caught, leaf, same_training

FORMS = [False, True]  # of `use_reentrant`


class Layers(nn.Module):
    def __init__(self, form, dropout=0.0, count=4, width=32):
        super().__init__()
        self.form = form
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
            )
            for _ in range(count)
        )  # fmt: skip

    def forward(self, x):
        for layer in self.layers:
            x = x + (
                layer(x) if self.form is None else checkpoint(layer, x, use_reentrant=self.form)
            )
        return x


def saved_bytes(result):
    """Of what the node behind it keeps, inputs of the program not counted."""
    node = result.grad_fn
    own = node.saved_tensors[len(node.region.how.saved_inputs) :]
    return sum(t.numel() * t.element_size() for t in own)


@pytest.mark.parametrize("options", [{"determinism_check": "none"}, {"early_stop": False}])
def test_options_that_change_nothing(options):
    def scaled(y, *, by, shift=None):
        return (y.sin() * by).exp() + shift

    def fn(x):
        made = checkpoint(scaled, x, use_reentrant=False, by=2.0, shift=x * 3, **options)
        return (made * x).sum()

    found = []
    with torch.enable_grad():
        for run in (fn, frameloom.jit(fn, fullgraph=True)):
            x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
            found.append([run(x), *torch.autograd.grad(run(x), x)])
    torch.testing.assert_close(*found)


@pytest.mark.compiled
@pytest.mark.parametrize("form", FORMS)
def test_a_region_is_one_graph_and_nothing_inside_is_saved(form):
    x = leaf(64, 32)
    with torch.enable_grad():
        plain = frameloom.explain(Layers(None))(x)
        regions = frameloom.explain(Layers(form))(x)
        assert len(regions.graphs) == 1 and not regions.breaks
        one = 64 * 32 * 4
        assert saved_bytes(regions.result) <= 4 * one < 16 * one < saved_bytes(plain.result)
        regions.result.sum().backward()
    library = regions.graphs[0].backward[0].library_calls
    assert library.count("aten.addmm.default") == 4  # the first of each region


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_and_random_numbers_are_those_of_eager(form, dropout):
    start = Layers(form, dropout)

    def program(jit):
        model, seen = copy.deepcopy(start), []
        jitted = jit(model)
        for k in range(2):
            torch.manual_seed(k)
            x = leaf(16, 32)
            loss = jitted(x).square().mean()
            model.zero_grad()
            loss.backward()
            seen += [loss, x.grad, *(p.grad for p in model.parameters()), torch.rand(2)]
        return seen

    same_training(program)


FUNCTIONS = {
    "two results": lambda form, x, w: sum(checkpoint(lambda a: ((a @ w).tanh(), a.exp()), x, use_reentrant=form)),
    "a region in a region": lambda form, x, w: checkpoint(
        lambda a: checkpoint(lambda b: (b @ w).sin(), a.cos(), use_reentrant=False).exp(), x, use_reentrant=False
    ),
    "its result is the program's": lambda form, x, w: checkpoint(lambda a: (a @ w).sigmoid(), x, use_reentrant=form),
    "its result is read by others": lambda form, x, w: (y := checkpoint(lambda a: (a @ w).sigmoid(), x, use_reentrant=form)) * y,
    "an intermediate goes in": lambda form, x, w: checkpoint(lambda a: (a @ w).sigmoid(), x * 2, use_reentrant=form),
    "partial": lambda form, x, w: functools.partial(checkpoint, use_reentrant=form)(lambda a: F.softmax(a @ w, -1), x),
    "a view": lambda form, x, w: checkpoint(lambda a: (a @ w).t(), x, use_reentrant=form),
    "an argument comes back": lambda form, x, w: checkpoint(lambda a: a, x * w[0], use_reentrant=form),
    "no gradient inside": lambda form, x, w: checkpoint(lambda a: a.detach() + 1, x, use_reentrant=form) * w.sum(),
    "history by another way": lambda form, x, w: (h := x.exp(), checkpoint(lambda a: a * h, x, use_reentrant=False))[1],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_eager(name, form):
    def program(jit):
        f = jit(functools.partial(FUNCTIONS[name], form))
        x, w = leaf(6, 6), leaf(6, 6)
        out = f(x, w)
        out.square().sum().backward()
        return [out, x.grad, w.grad]

    same_training(program)


def test_what_a_region_does_beside_computing_happens_as_in_eager():
    def program(jit):
        seen = []
        norm = nn.BatchNorm1d(4)

        def region(a):
            seen.append(1)
            return norm(a).exp()

        x = leaf(8, 4)
        out = jit(lambda x: checkpoint(region, x * 2, use_reentrant=False).sum())(x)
        before = len(seen)
        out.backward()
        return [out, x.grad, norm.running_mean, torch.tensor([before, len(seen)])]

    same_training(program)


@pytest.mark.parametrize("change", ["attribute", "list", "tensor", "mode"])
def test_functions_that_change_things_are_left_to_python(change):
    class Holder:
        value = 0

    holder, local = Holder(), torch.zeros(3)

    def f(x):
        inside = []

        def region(a):
            if change == "attribute":
                holder.value += 1
            elif change == "list":
                inside.append(a)
            elif change == "tensor":
                local.add_(1)
            elif torch.is_grad_enabled():
                a = a * 2
            return a.exp()

        return checkpoint(region, x, use_reentrant=change == "mode")

    with torch.enable_grad():
        report = frameloom.explain(f)(leaf(3))
    assert [b.kind for b in report.breaks][:1] == ["library_call"]


def test_a_region_that_writes_its_argument():
    """Not a region: the call is plain Python's, with the history of the argument as it was before the trial."""

    def f(x):
        h = F.instance_norm(x * 2)
        return checkpoint(F.silu, h, True, use_reentrant=False).sum()

    def trained(f):
        torch.manual_seed(0)
        x = leaf(2, 3, 4)
        out = f(x)
        return out, caught(out.backward), x.grad

    with torch.enable_grad():
        plain, compiled = trained(f), trained(frameloom.jit(f))
    assert str(plain[1])[:80] == str(compiled[1])[:80]
    torch.testing.assert_close(plain[0], compiled[0])
    torch.testing.assert_close(plain[2], compiled[2])


def test_the_older_form_refuses_autograd_grad():
    x = leaf(3)
    with torch.enable_grad():
        out = frameloom.jit(lambda x: checkpoint(lambda a: a.exp(), x, use_reentrant=True).sum())(x)
        with pytest.raises(RuntimeError, match="incompatible with"):
            torch.autograd.grad(out, x)


def test_without_gradients_and_with_warnings():
    def program(jit):
        f = jit(lambda x, form: checkpoint(lambda a: a.exp(), x, use_reentrant=form))
        with torch.no_grad():
            results = [f(leaf(3), False)]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            results.append(f(torch.ones(3), True))
        texts = [str(w.message)[:40] for w in seen if "requires_grad" in str(w.message)]
        return [*results, torch.tensor(len(texts)), caught(f, leaf(3), "x")[0] is not None]

    same_training(program)


def test_sequential():
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
    with torch.enable_grad():
        run = functools.partial(checkpoint_sequential, use_reentrant=False)
        report = frameloom.explain(lambda x: run(layers, 2, x))(x := leaf(4, 8))
        assert len(report.graphs) == 1 and not report.breaks
        report.result.sum().backward()
        expected = torch.autograd.grad(layers(x).sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)


# --- options={"memory_budget": ...}


@pytest.mark.parametrize("share", [0.75, 0.5, 0.3, 0.1])
def test_what_is_saved_fits_into_the_budget(share):
    model, x = Layers(None, count=6), leaf(64, 32)
    with torch.enable_grad():
        everything = saved_bytes(frameloom.jit(copy.deepcopy(model))(x))
        for budget in (share, int(share * everything)):
            jitted = frameloom.jit(copy.deepcopy(model), options={"memory_budget": budget})
            out = jitted(x)
            assert saved_bytes(out) <= share * everything
            assert saved_bytes(out) >= (share - 0.2) * everything
            found = torch.autograd.grad(out.square().sum(), [x, *jitted.parameters()])
        expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_budget_where_a_running_maximum_is_computed():
    """It is no matrix product."""

    def f(x):
        return x.median().cummax(0)[0] * x.exp()

    jitted = frameloom.jit(f, options={"memory_budget": 0.5})
    with torch.enable_grad():
        x = leaf(3, 4)
        found = [torch.autograd.grad(g(x).sum(), x) for g in (jitted, f)]
    torch.testing.assert_close(*found)


@pytest.mark.filterwarnings("ignore:.*plain Python")
@pytest.mark.parametrize("budget", [0, 0.5])
def test_a_budget_where_an_input_repeats_its_memory(budget, monkeypatch, capsys):
    """No copy of it does: a plan that asks for one fails at each call, and is begun again as plain Python."""

    def f(x, y):
        view = x.view_as(y)
        return checkpoint(lambda q, r=view: (q * r).tanh(), y, use_reentrant=False)

    def gradients(f):
        x = torch.arange(3.0).requires_grad_()
        f(x.expand(3, 3), torch.ones(3, 3)).sum().backward()
        return x.grad

    logs = dataclasses.replace(debug.config, logs=frozenset({"recompiles"}))
    monkeypatch.setattr(debug, "config", logs)
    with torch.enable_grad():
        found = gradients(frameloom.jit(f, options={"memory_budget": budget}))
        torch.testing.assert_close(found, gradients(f))
    assert "starts anew" not in capsys.readouterr().err


@pytest.mark.parametrize("size", [32, 96])
def test_random_numbers_are_the_same_whatever_the_budget(size):
    """Small ones are saved, others drawn again."""
    x = leaf(size, size)

    def f(x):
        return F.dropout(x @ x / size, 0.5).exp().sum()

    results = []
    for jitted in (f, frameloom.jit(f, options={"memory_budget": 0})):
        torch.manual_seed(3)
        with torch.enable_grad():
            out = jitted(x)
            results.append((torch.autograd.grad(out, x)[0], torch.rand(3)))
    assert saved_bytes(jitted(x)) <= 6000
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("draw", ["dropout", "rand_like", "randn", "bernoulli", "two"])
def test_random_numbers_of_a_region_are_drawn_again(form, draw):
    draws = {
        "dropout": lambda x: F.dropout(x, 0.3),
        "rand_like": lambda x: torch.rand_like(x) * x,
        "randn": lambda x: torch.randn(x.shape) * x,
        "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.25)) * x,
        "two": lambda x: F.dropout(x, 0.2) * torch.rand(x.shape[1]),
    }

    def f(x):
        return checkpoint(lambda y: draws[draw](y.sin()) * 2, x, use_reentrant=form) + torch.rand(1)

    seen = []
    for run in (f, frameloom.jit(f)):
        x = leaf(64, 80)
        torch.manual_seed(3)
        with torch.no_grad():
            x.fill_(1)
        with torch.enable_grad():
            for _ in range(2):
                out = run(x)
                between = torch.rand(2)
                out.sum().backward()
                seen.append((out.detach(), between, x.grad.clone(), torch.rand(2)))
    assert saved_bytes(run(x)) <= 12000
    plain, compiled = seen[:2], seen[2:]
    torch.testing.assert_close(compiled, plain, rtol=1e-6, atol=1e-6)


def test_random_numbers_of_a_region_for_two_backward_passes():
    x = leaf(64, 80)

    def f(x):
        return checkpoint(lambda y: F.dropout(y, 0.5), x.exp(), use_reentrant=False)

    out = frameloom.jit(f)(x)
    first = torch.autograd.grad(out.sum(), x, retain_graph=True)[0]
    second = torch.autograd.grad(out.sum(), x)[0]
    assert torch.equal(first, second) and torch.equal(first != 0, out != 0)


def test_masks_are_drawn_again_without_what_they_mask():
    """The region's last dropout needs a mask for its gradient, and nothing that would have to be multiplied for it."""
    x = leaf(64, 96)
    region = nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 96), nn.Dropout(0.2))
    with torch.enable_grad():
        told = frameloom.explain(lambda x: x + checkpoint(region, x, use_reentrant=False))(x)
        told.result.sum().backward()
    calls = told.graphs[0].backward[0].library_calls
    assert calls.count("aten.addmm.default") == 1
    assert sum("redrawn" in call for call in calls) == 1


def test_gradients_asked_for_behind_a_reentrant_checkpoint():
    def fn(x, w):
        loss = checkpoint(lambda a: (a @ w).tanh(), x, use_reentrant=True).sum()
        return torch.autograd.grad(loss, [x])

    def program(jit):
        return caught(jit(fn), leaf(2, 3), leaf(3, 3))

    same_training(program, plain=None)


def test_a_number_that_varies_beside_a_region():
    def fn(x, y, number):
        return (
            x * 2,
            y * (number + 2),
            checkpoint(lambda q: (q * y).tanh(), x.abs(), use_reentrant=False),
        )

    jitted = frameloom.jit(fn)
    for number in (0.0, -1.25, 3.5):
        grads = []
        for side in (fn, jitted):
            x, y = torch.ones(2, 1, requires_grad=True), torch.ones(2, 2, requires_grad=True)
            sum(t.sum() for t in side(x, y, number)).backward()
            grads.append((x.grad, y.grad))
        torch.testing.assert_close(grads[1], grads[0])


def test_gradient_that_could_have_one_beside_a_region_whose_input_is_not_saved():
    def fn(x, y, z):
        checkpoint(lambda q, r=y: q * r, y, use_reentrant=False)
        t = x * 1
        t[1].mul_(z[1])
        torch.autograd.grad(t.norm(), z, create_graph=True)

    x = torch.arange(1.0, 4.0).requires_grad_() * 1
    y, z = torch.tensor(2.0), torch.arange(2.0, 5.0).requires_grad_()
    frameloom.jit(fn)(x, y, z)  # raised


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("given", ["plain", "with a gradient", "inference"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.enable_grad])
def test_inference_tensors_cannot_be_saved(mode, given, reentrant):
    def fn(x, w):
        with mode(), torch.enable_grad():
            return checkpoint(torch.mul, x, w, use_reentrant=reentrant)

    def seen(side):
        with torch.inference_mode(given == "inference"):
            x = torch.ones(3)
        x = x.requires_grad_() if given == "with a gradient" else x
        told = caught(side, x, leaf(3))
        return (told.requires_grad, told.is_inference()) if torch.is_tensor(told) else told

    assert seen(frameloom.jit(fn)) == seen(fn)


def test_a_view_made_in_inference_mode_whose_base_is_changed():
    def fn(y):
        with torch.inference_mode():
            view = y.T
        return checkpoint(lambda q: (q * y).tanh(), view, use_reentrant=False)

    def seen(side):
        y = torch.ones(2, 2).requires_grad_()
        result = side(y)
        with torch.no_grad():
            y.add_(1)
        return caught(result.sum().backward)

    assert seen(frameloom.jit(fn)) == seen(fn)
