"""Views that a call returns or leaves behind, of tensors without a history that are then written to with one: autograd knows
which views were made with gradient mode on."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import frameloom
from tests.jit.gradients.training import caught, leaf, same_training


def a_view(z):
    return z * 2, z, z.view(3, 1)


def of_a_new_tensor(z):
    new = z + 1
    return z * 2, new, new[1:]


def of_a_view(z):
    return z * 2, z, z[1:].unsqueeze(0)


def before_a_break(z):
    view, new = z[:2], z * 2
    print(end="")
    return new, z, view


def without_gradients(z):
    with torch.no_grad():
        view = z[1:]
    return z * 2, z, view


def of_a_view_without_gradients(z):
    with torch.no_grad():
        view = z[1:]
    return z * 2, z, view[:1]


def written(z):
    view = z[1:]
    view.mul_(3)
    return z * 2, z, view


def write_base(base, view):
    base.mul_(torch.ones(3, requires_grad=True))
    base.sum().backward()
    return view.requires_grad, view.is_leaf


def write_view(base, view):
    view.mul_(torch.ones((), requires_grad=True))
    return base.requires_grad, base.is_leaf, view.is_leaf


def change_layout(base, view):
    part = view.requires_grad_()[0]
    base.unsqueeze_(0)
    return part.is_leaf


def seen(fn, then, grad):
    with torch.set_grad_enabled(grad):
        _, base, view = fn(torch.arange(3.0))
    try:
        return then(base, view)
    except RuntimeError as error:
        return str(error).splitlines()[0]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("then", [write_base, write_view, change_layout])
@pytest.mark.parametrize(
    "fn",
    [
        a_view,
        of_a_new_tensor,
        of_a_view,
        before_a_break,
        without_gradients,
        of_a_view_without_gradients,
        written,
    ],
)
def test_what_autograd_knows_of_a_view(fn, then, grad):
    assert seen(frameloom.jit(fn), then, grad) == seen(fn, then, grad)


BESIDE = {
    "a new tensor": lambda z: torch.ones(3),
    "a detached one": lambda z: (z * 2).detach(),
    "a detached view": lambda z: z[1:].detach(),
    "a part of several": lambda z: (z * 2).split(1)[0],
    "a view without gradients": without_gradients,
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("then", [write_base, write_view, change_layout])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("fn", [a_view, of_a_new_tensor, before_a_break, without_gradients])
def test_what_autograd_knows_of_a_view_beside_others(fn, beside, then, grad):
    def both(z):
        other = BESIDE[beside](z)
        return *fn(z), other

    def made(side):
        return lambda z: side(z)[:3]

    assert seen(made(frameloom.jit(both)), then, grad) == seen(made(both), then, grad)


def of_an_input(x):
    return (x.detach(),)


def of_a_view(x):
    return (x.view(-1).detach(),)


def beside_what_it_is_of(x):
    y = x * 2
    return y.detach(), y


def beside_a_spent_one(x):
    loss = (x * x.detach().clone().requires_grad_()).sum().view(1)
    loss.backward()
    return loss.detach(), loss.view(1)


@pytest.mark.parametrize("make", [of_an_input, of_a_view, beside_what_it_is_of, beside_a_spent_one])
def test_a_history_that_is_given_to_a_detached_tensor(make):
    def fn(x, y):
        first, *others = make(x)
        print(end="")
        first[0] = y[0]
        return first, others

    x, y = torch.ones(3), torch.ones(3, requires_grad=True)
    first, others = frameloom.jit(fn)(x, y)
    want, beside = fn(torch.ones(3), y)
    assert torch.equal(first, want)
    assert [t.requires_grad for t in (first, *others)] == [t.requires_grad for t in (want, *beside)]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2).view(4).detach_(),
        lambda x: torch.arange(4).split(2)[0].detach_(),
        lambda x: F.max_pool1d(x * 2, 2, return_indices=True)[1].detach_(),
        lambda x: (x * 2).view(4).detach().detach_(),
        lambda x: (x * 2).detach_(),
        lambda x: x.detach_(),
    ],
)
def test_views_cannot_be_detached_in_place(fn, grad):
    def program(jit):
        compiled = jit(fn)
        make = [lambda: leaf(2, 2) if grad else torch.ones(2, 2), lambda: torch.ones(4).view(2, 2)]
        return [caught(compiled, new()) for new in make * 2]

    same_training(program, plain=None)


@pytest.mark.parametrize(
    "fn", [lambda x: (x * 2).view(4), lambda x: F.max_pool1d(x, 2), lambda x: torch.kron(x, x)]
)
def test_whether_it_is_a_view(fn):
    for x in (torch.ones(2, 2), leaf(2, 2)):
        assert frameloom.jit(lambda x: fn(x)._is_view())(x) == fn(x)._is_view()


@pytest.mark.parametrize(
    "other",
    [
        lambda w: torch.autograd.grad(w.sum(), w)[0],
        lambda w: torch.empty_like(w.detach()),
        lambda w: w.detach().exp().split(1)[0],
    ],
)
def test_a_history_that_is_given_to_a_view_beside_others(other):
    """A view is made in the mode in which the program made it, whatever the other results are."""

    def program(jit):
        w = leaf(3)
        view, _ = jit(lambda x, w: (x.squeeze(-1), other(w)))(torch.ones(3, 3), w)
        view.add_(w)
        return view

    same_training(program)


MADE = {
    "a piece": lambda x: x.split(1)[1],
    "one of several": lambda x: x.unbind()[1],
    "of a piece": lambda x: x.split(1)[1][:1],
    "without gradients": torch.no_grad()(lambda x: x[1:]),
    "in inference mode": torch.inference_mode()(lambda x: x[1:]),
    "with gradients": lambda x: x[1:],
}
WRITES = {
    "with a gradient": lambda x: x.copy_(x.flip(0)),
    "without": torch.no_grad()(lambda x: x.add_(1)),
}
USES = {
    "used": lambda v: v + 1,
    "used without gradients": torch.no_grad()(lambda v: v + 1),
    "detached": lambda v: v.detach() + 1,
    "looked at": lambda v: v.is_leaf,
    "of its own": lambda v: v.view(-1),
}


@pytest.mark.filterwarnings("ignore:.*run as plain Python")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("make", MADE)
def test_a_use_that_autograd_refuses_behind_a_write_to_the_base(make, write, use):
    """Also where nobody uses what comes of it."""

    def fn(x):
        view = MADE[make](x)
        told = None
        try:
            WRITES[write](x)
            USES[use](view)
        except RuntimeError as error:
            told = str(error)
        return told

    assert frameloom.jit(fn)(leaf(4) * 1) == fn(leaf(4) * 1)


@pytest.mark.parametrize(
    "part", [lambda x: x.imag, lambda x: x.conj().imag, lambda x: torch.view_as_real(x)[..., 0]]
)
@pytest.mark.parametrize("give", [lambda x: x[:, 0], lambda x: x[:, ::2], lambda x: x.t()[:3]])
def test_parts_of_complex_numbers_with_gaps_that_are_written_with_a_history(give, part):
    """A gradient of the whole has only as much memory as there is between its elements."""

    def fn(x, z):
        v = part(x)
        print(end="")
        v.copy_(z)
        return v

    found = []
    for side in (fn, frameloom.jit(fn)):
        x = give(torch.ones(3, 4, dtype=torch.complex64)).detach()
        z = torch.full(x.shape, 2.0, requires_grad=True)
        v = side(x, z)
        (gradient,) = torch.autograd.grad(v.sum() * 3 + x.real.sum(), z)
        found.append((gradient.tolist(), v.tolist(), x._version, v._base is x._base))
    assert found[0] == found[1]


def within(mode, view):
    with mode():
        return view()


@pytest.mark.parametrize("first, second", [
    (torch.inference_mode, torch.no_grad), (torch.no_grad, torch.inference_mode), (torch.inference_mode, torch.enable_grad),
])  # fmt: skip
def test_views_of_views_in_several_modes_that_are_written(first, second):
    """Autograd refuses, and says of which mode."""

    def program(jit):
        @jit
        def fn(x):
            one = within(first, lambda: x[:, :2])
            two = within(second, lambda: one[1:])
            two.mul_(2)
            return one, two

        @jit
        def beside(x):
            one = within(first, lambda: x[:, :2])
            new = torch.ones(3) * one.shape[1]
            one[1:] = 5
            return one, new

        return [caught(f, leaf(3, 3) * 1) for f in (fn, beside) for _ in range(2)]

    same_training(program, plain=None)


PIECES = {
    "unbind": lambda x: x.unbind(0)[-1:],
    "split": lambda x: x.split(1)[-1:],
    "chunk": lambda x: x.chunk(2)[:1],
}
NEW = {
    "full_like": lambda x: torch.full_like(x, 2),
    "zeros": lambda x: torch.zeros(3),
    "arange": lambda x: torch.arange(3.0),
    "computed": lambda x: x * 2,
}


@pytest.mark.parametrize("make", NEW.values(), ids=NEW)
@pytest.mark.parametrize("cut", PIECES.values(), ids=PIECES)
def test_a_piece_of_a_new_tensor_that_is_written_with_a_history(cut, make):
    """Autograd refuses it, also where the graph has a history of its own."""

    def fn(x, z):
        new, others = make(x), z * 2
        piece = cut(new)[0]
        piece.add_(others[0])
        return new

    def program(jit):
        return caught(jit(fn), torch.ones(3), leaf(3))

    same_training(program, plain=None)


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded")
def test_a_view_that_gets_other_memory():
    """`set_` leaves it a view of its base, in whose memory it no longer lies: there the result was made again, and wrote."""

    def fn(x, other):
        y = x.view_as(x)
        y.set_(other)
        x.zero_()
        made = y.t()
        made.tril_()
        made[torch.tensor([0])] += 2
        return y, made.fill_(3)

    def seen(f):
        x = torch.ones(4, 2, dtype=torch.complex64)
        other = torch.ones(4, 1, dtype=torch.complex64).expand(4, 2).t()
        return [(t.tolist(), t.stride()) for t in (x, other, *f(x, other))]

    f = frameloom.jit(fn)
    assert [seen(f) for _ in range(3)] == [seen(fn)] * 3
