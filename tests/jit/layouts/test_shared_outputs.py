"""Results that share memory are views of one tensor, as eager's are: they share the count of writes, by which autograd notices changes."""

import pytest
import torch
import torch.nn.functional as F

import frameloom

pytestmark = pytest.mark.compiled

PROGRAMS = [
    lambda x: (lambda t: (t, t[0]))(x + 1),
    lambda x: (lambda t: (t[0], t))(x + 1),
    lambda x: (lambda t: (t[0], t[1], t[0]))(x + 1),
    lambda x: (x * 2).chunk(2),
    lambda x: (lambda t: (t.t(), t.view(-1), x[0]))(x + 1),
    lambda x: (lambda t: (t, t.view_as(t)))(x + 1),
    lambda x: (lambda t: (t[1:].view(torch.int32), t))(x + 1),
    lambda x: (lambda t: (t.imag, t))(x + 1j),
    lambda x: (lambda t: (torch.view_as_complex(t), t))(x[:, :2] + 1),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_writes_to_one_result_are_counted_for_the_others(fn, dynamic):
    jitted = frameloom.jit(fn, dynamic=dynamic)
    for rows in (2, 4, 4):
        found = []
        for side in (fn, jitted):
            results = side(torch.ones(rows, 3))
            results[0].add_(1)
            found.append([(r._version, r.tolist(), r.stride()) for r in results])
        assert found[0] == found[1]


def test_a_change_of_what_is_saved_is_noticed():
    def make(x):
        t = x + 1
        return t, t[0]

    w = torch.ones(3, requires_grad=True)
    for side in (make, frameloom.jit(make)):
        t, row = side(torch.ones(2, 3))
        loss = (w * t).sum()
        row.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def base_of_a_view(x):
    t = x + 1
    a = t[0]
    if a._base is None or t._base is not None:
        return 1
    return (2, a._base is t, a), t


def base_behind_a_break(x):
    t = x + 1
    a = t[0]
    print("break")
    return a._is_view(), a._base is t, t._is_view()


@pytest.mark.parametrize("fn", [base_of_a_view, base_behind_a_break])
def test_a_view_tells_its_base(fn):
    from tests.helpers import check

    check(fn, torch.ones(3))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "view",
    [
        lambda t, n: t.diagonal(n),
        lambda t, n: torch.diagonal(t, -n),
        lambda t, n: t.unfold(0, n, 1),
    ],
)
def test_a_view_that_is_recorded_otherwise_tells_its_base(view, dynamic):
    def fn(x, n):
        t = x > 0
        z = view(t, n)
        return z, "own" if z._base is None else "a view", z._base is t

    jitted = frameloom.jit(fn, dynamic=dynamic)
    for n in (1, 2, 3):
        made, *expected = fn(torch.ones(4, 4), n)
        view_, *found = jitted(torch.ones(4, 4), n)
        assert found == expected
        assert view_._base.shape == made._base.shape


ALONE = {
    "a part": lambda x: (x + 1)[-1],
    "all of it": lambda x: (x + 1)[:],
    "transposed": lambda x: (x + 1).t().view_as(x.t()),
    "a piece": lambda x: (x + 1).split(1)[1],
    "a diagonal": lambda x: (x + 1).diagonal(),
    "windows": lambda x: (x + 1).unfold(1, 2, 1),
    "within a function": lambda x: torch.atleast_3d(x + 1),
    "of a product": lambda x: torch.einsum("ij,kj->ik", x, x),
    "none": lambda x: F.max_pool1d(x, 2),
    "unsafe": lambda x: x.expand(2, 2, 3) @ x.t(),
    "detached": lambda x: (x + 1)[0].detach(),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ALONE)
def test_a_result_alone_is_a_view_as_eager_has_it(name, grad, beside):
    """`beside`: a result that needs a gradient."""
    w = torch.ones(2, requires_grad=beside)

    def told(fn):
        found = []
        for _ in range(2):
            with torch.set_grad_enabled(grad):
                view, other = fn(torch.ones(2, 3))
            base = view._base
            whole = None if base is None else (base.shape, base.stride(), base._is_view())
            found.append((view._is_view(), whole, view.stride(), view.untyped_storage().nbytes()))
            before = view._version
            with torch.no_grad():
                view.add_(1)
            found.append((view._version - before, base is None or base._version))
        return found

    def fn(x):
        return ALONE[name](x), w * 2

    assert told(frameloom.jit(fn)) == told(fn)


ROWS = {
    "F": lambda x: F.max_pool1d(x, 2),
    "torch": lambda x: torch.max_pool1d(x, 2),
    "with places": lambda x: F.max_pool1d(x, 2, return_indices=True),
    "a layer": torch.nn.MaxPool1d(2, return_indices=True),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_windows_of_rows_are_views_of_those_of_images_where_eager_makes_them_so(
    name, requires_grad, dynamic
):
    def told(side):
        found = []
        for shape in (2, 4, 6), (3, 5, 4):
            x = torch.ones(shape).mT.requires_grad_(requires_grad)
            found += [
                (t.stride(), t._is_view(), t._base is None)
                for t in torch.utils._pytree.tree_leaves(side(x))
            ]
        return found

    assert told(frameloom.jit(ROWS[name], dynamic=dynamic)) == told(ROWS[name])


DETACHED = [
    lambda x: (x * 2).detach(),
    lambda x: (x * 2).detach().t(),
    lambda x: (x * 2).t().detach().t(),
    lambda x: (x * 2).data.t(),
    lambda x: (x * 2).detach().t().requires_grad_(),
    lambda x: x.detach().t(),
]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("fn", DETACHED)
def test_a_view_of_what_is_detached(fn, requires_grad):
    found = []
    for side in (fn, frameloom.jit(fn)):
        t = side(torch.ones(2, 3, requires_grad=requires_grad))
        found.append((t._is_view(), t._base is None, t.requires_grad, t.is_leaf, t.stride()))
    assert found[0] == found[1]


BEHIND_A_CUT = {
    "alone": lambda y, d: (d.t()[1:],),
    "beside it": lambda y, d: (d.t(), d),
    "beside all": lambda y, d: (y, d[0], d, d.t()),
    "two of one": lambda y, d: (d[0], d.t()),
    "cut again": lambda y, d: (d.t().detach()[0], d.t().data[0], d),
    "as ints": lambda y, d: (d.view(torch.int32), d),
    "before all": lambda y, d: (d, y),
    "before all, with parts": lambda y, d: (y[0], d, d.t(), y, y[1:]),
}


@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("cut", [torch.Tensor.detach, torch.Tensor.data.__get__])
@pytest.mark.parametrize("name", BEHIND_A_CUT)
def test_what_views_are_views_of_behind_a_cut(name, cut, of_input):
    def fn(x):
        y = x if of_input else x * 2
        return BEHIND_A_CUT[name](y, cut(y))

    def told(fn, requires_grad):
        results = fn(torch.arange(6.0).view(2, 3).requires_grad_(requires_grad))
        bases = [next((k for k, b in enumerate(results) if t._base is b), None) for t in results]
        seen: list = [bases, [(t._is_view(), t._base is None, t.is_leaf) for t in results]]
        with torch.no_grad():
            for t in results:
                t.mul_(2)
                seen.append([r._version for r in results])
        return seen, results

    for requires_grad in (False, True):
        plain = told(fn, requires_grad)
        for jitted in (frameloom.jit(fn), frameloom.jit(fn, backend="eager")):
            found = told(jitted, requires_grad)
            assert found[0] == plain[0]
            for f, p in zip(found[1], plain[1], strict=True):
                torch.testing.assert_close(f, p)


def test_a_pass_notices_a_write_beside_what_it_saves():
    def fn(x):
        d = x.data
        return d, d[0]

    w = torch.ones(3, requires_grad=True)
    for side in (fn, frameloom.jit(fn)):
        whole, row = side(torch.ones(2, 3))
        out = row * w
        whole.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_a_question_after_the_base_behind_data():
    def fn(x):
        if x.data.squeeze(-1)._base is None:
            raise ValueError
        return x + 1

    assert frameloom.jit(fn)(torch.tensor(1.0)) == 2


LAZY = {
    "conjugated": lambda z: z.conj(),
    "of a row": lambda z: z[0].conj(),
    "transposed": lambda z: z.H,
    "imaginary": lambda z: z.conj().imag,
    "negated": lambda z: torch._neg_view(z)[1:],
    "real, of a new one": lambda z: (z * 2).H.real,
    "of a new one": lambda z: (z * 2).conj(),
    "of a part of a new one": lambda z: (z * 2)[1:].H,
    "imaginary, of a new one": lambda z: (z * 2).conj().imag,
}
BESIDE = {
    "alone": lambda view: lambda z: (view(z),),
    "twice": lambda view: lambda z: (view(z), view(z)),
    "beside its base": lambda view: lambda z: (lambda y: (view(y), y))(z * 2),
    "behind a break": lambda view: lambda z: (v := view(z), print(end=""), v.mul_(3))[::2],
    "beside something else": lambda view: lambda z: (z * 3, view(z), z),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", LAZY)
def test_views_that_are_conjugated_when_they_are_read_are_views(name, beside, grad):
    """They share their base's memory and count of writes, and take what has a history."""
    fn = BESIDE[beside](LAZY[name])
    seen = []
    for side in (fn, frameloom.jit(fn)):
        z = torch.complex(torch.arange(6.0), torch.ones(6)).view(3, 2)
        with torch.set_grad_enabled(grad):
            results = side(z)
        told = [[v._is_view(), v.is_conj(), v.is_neg(), v.stride()] for v in results]
        for v in results:
            if v._base is not None:
                told.append([v._base is z, v._base.shape, [v._base is r for r in results]])
            v.add_(1)
            told.append([z._version, [r._version - results[0]._version for r in results]])
        told.append([z.tolist(), [v.tolist() for v in results]])
        if grad:
            v = results[0].mul_(torch.ones(results[0].shape, requires_grad=True))
            told.append([v.requires_grad, z.requires_grad])
        seen.append(told)
    assert seen[0] == seen[1]
