"""What a checkpointed region reads or gives is changed, or found outside of it: a pass reads it as in eager, or refuses."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import frameloom
from tests.jit.gradients.training import caught, facts, leaf, same_training

FORMS = [False, True]  # of `use_reentrant`


@pytest.mark.parametrize("budget", [0, 0.5])
@pytest.mark.parametrize("which", ["bias", "weight"])
def test_what_eager_does_not_keep_may_change_before_the_backward_pass(which, budget):
    """Computing again must not read what was changed, nor ask that nothing was."""

    def f(x, weight, bias):
        return F.layer_norm(x @ weight + bias, (4,)).tanh().sum()

    def gradients(f):
        torch.manual_seed(0)
        x, weight, bias = torch.randn(6, 4), leaf(4, 4), leaf(4)
        changed = {"bias": bias, "weight": weight}[which]
        out = f(x, weight, bias)
        with torch.no_grad():
            changed.mul_(2)
        out.backward()
        return weight.grad, bias.grad

    with torch.enable_grad():
        found = gradients(frameloom.jit(f, options={"memory_budget": budget}))
        torch.testing.assert_close(found, gradients(f))


@pytest.mark.filterwarnings("ignore:.*plain Python")
@pytest.mark.parametrize("budget", [None, 0, 0.5])
@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("which", ["closure", "default", "computed"])
def test_what_a_region_reads_is_changed_behind_it(which, needs, budget):
    """Eager computes it again from what is there by then."""

    def closure(x, y):
        return checkpoint(lambda q: (q * y).tanh(), x, use_reentrant=False), y.mul_(2)

    def default(x, y):
        view = y.view_as(x)
        return checkpoint(lambda q, r=view: (q * r).tanh(), x, use_reentrant=False), y.mul_(2)

    def computed(x, y):
        y = y * 1
        return checkpoint(lambda q: (q * y).tanh(), x, use_reentrant=False), y.mul_(2)

    def gradients(f):
        x, y = (torch.tensor([0.3, n]).requires_grad_(n > 0.5 or needs) for n in (0.4, 0.7))
        f(x * 1, y * 1)[0].sum().backward()
        return x.grad if needs else 0, y.grad

    f = {"closure": closure, "default": default, "computed": computed}[which]
    options = {} if budget is None else {"options": {"memory_budget": budget}}
    with torch.enable_grad():
        torch.testing.assert_close(gradients(frameloom.jit(f, **options)), gradients(f))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("around", ["alone", "before sin", "twice"])
def test_what_a_region_reads_beside_its_arguments_may_change_before_the_backward_pass(form, around):
    def region(y, w):
        return checkpoint(lambda y: F.linear(y, w).sin() * w, y, use_reentrant=form)

    def fn(x, w):
        y = region(x, w)
        return {"alone": lambda: y, "before sin": lambda: y.sin(), "twice": lambda: region(y, w)}[
            around
        ]()

    def program(jit):
        x, w = leaf(3, 3), leaf(3, 3)
        out = jit(fn)(x, w)
        with torch.no_grad():
            w.mul_(2)
        out.sum().backward()
        return x.grad, w.grad

    same_training(program)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", ["argument", "read outside"])
def test_what_is_not_only_read_in_a_region_must_not_change(form, change):
    def fn(x, w):
        y = checkpoint(lambda y: (y * w).sin(), x, use_reentrant=form)
        return y * w if change == "read outside" else y

    def program(jit):
        x, w = leaf(3), leaf(3)
        out = jit(fn)(x, w)
        with torch.no_grad():
            (x if change == "argument" else w).mul_(2)
        return caught(lambda: out.sum().backward()) is not None

    same_training(program)


RESULTS = {
    "as it is": lambda r, w: r,
    "not read": lambda r, w: r * 2,
    "saved": lambda r, w: r @ r,
    "read by what is saved": lambda r, w: r.exp() * 2,
    "given to another region": lambda r, w: checkpoint(lambda a: (a @ w).tanh(), r, use_reentrant=False),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("end", [torch.relu, lambda t: t.exp().view(4), lambda t: F.dropout(t.tanh())])  # fmt: skip
@pytest.mark.parametrize("then", RESULTS)
def test_a_region_that_saves_its_result_and_reads_what_changes(form, end, then):
    def fn(x, w, v):
        result = checkpoint(lambda a: end(a @ w), x, use_reentrant=form)
        return RESULTS[then](result.view(2, 2), v)

    def program(jit):
        x, w, v = leaf(2, 2), leaf(2, 2), leaf(2, 2)
        out = jit(fn)(x, w, v)
        with torch.no_grad():
            w.mul_(-0.5)
            v.add_(1)
        out.sum().backward()
        return out, *facts(x, w, v)

    same_training(program)


@pytest.mark.parametrize("is_result", [False, True])
def test_a_region_that_reads_another_ones_result_in_a_closure(is_result):
    def fn(y, z):
        a = checkpoint(lambda q: q * z, y, use_reentrant=False)
        b = checkpoint(lambda q: (q * a).tanh(), y, use_reentrant=False)
        return (a, b) if is_result else b

    def program(jit):
        y, z = leaf(3), leaf(3)
        made = jit(fn)(y, z)
        sum(t.sum() for t in (made if is_result else [made])).backward()
        return made, *facts(y, z)

    same_training(program, plain=None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", ["elements", "shape", "nothing"])
@pytest.mark.parametrize("made", [lambda x: x * 2, lambda x: (x * 2).add_(1), lambda x: (x * 2)[1:].add_(1)])  # fmt: skip
def test_an_argument_of_a_region_that_is_a_result_and_changed_behind_the_call(made, change, form):
    def fn(x):
        y = made(x)
        return y, checkpoint(lambda y: (y * 1.5).tanh(), y, use_reentrant=form)

    def program(jit):
        x = leaf(3)
        y, out = jit(fn)(x)
        with torch.no_grad():
            if change == "elements":
                y.mul_(2)
            elif change == "shape":
                y.unsqueeze_(0)
        return caught(lambda: out.sum().backward()) is not None, x.grad

    same_training(program, plain=None)


@pytest.mark.parametrize("read", ["the result", "a gradient"])
def test_an_argument_of_a_region_that_the_call_changes(read):
    def fn(x):
        y = x * 1
        result = checkpoint(torch.tanh, y, use_reentrant=False)
        if read == "a gradient":
            (result,) = torch.autograd.grad(result.sum(), y, create_graph=True)
        y += 1
        return result

    def program(jit):
        x = leaf(3)
        return caught(jit(fn)(x).sum().backward) is None, x.grad

    same_training(program, plain=None)


class OfTheOther(torch.autograd.Function):
    """Both results are taken for those of the other argument."""

    @staticmethod
    def forward(ctx, x, y):
        return y + 1, x * 2

    @staticmethod
    def backward(ctx, g, h):
        return h * 2, g


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("read", [torch.tanh, torch.exp])
def test_a_result_that_a_region_saves_along_a_history_that_gives_nothing_is_changed(read, inside):
    """It is computed again where the region is, and refused elsewhere."""

    def fn(x, y):
        between = OfTheOther.apply(y, x)[0]
        return checkpoint(read, between, use_reentrant=False) if inside else read(between)

    def changed(fn):
        y = leaf(3)
        made = fn(torch.ones(3), y)
        made.add_(1)
        made.sum().backward()
        return y.grad

    want, got = caught(changed, fn), caught(changed, frameloom.jit(fn))
    if inside:
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    else:
        assert want[0] is got[0] is RuntimeError
