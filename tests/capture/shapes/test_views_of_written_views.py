"""Views of views that were just written lie where eager's do, whichever views, and whichever of them are written."""

import pytest
import torch

import frameloom
from tests.helpers import check

VIEWS = {
    "rows": lambda t: t[1:],
    "row": lambda t: t[-1],
    "columns": lambda t: t[..., 1:],
    "steps": lambda t: t[::2],
    "transposed": lambda t: t.transpose(0, -1),
    "flat": lambda t: t.view(-1) if t.is_contiguous() else t.unsqueeze(0),
    "unsqueezed": lambda t: t.unsqueeze(-1),
    "squeezed": lambda t: t.narrow(0, t.shape[0] - 1, 1).squeeze(0),
    "diagonal": lambda t: t.diagonal() if t.dim() > 1 else t[1:],
    "unfolded": lambda t: t.unfold(0, 2, 2),
    "strided": lambda t: t.as_strided((2,), (1,)),
    "piece": lambda t: t.split(2)[-1],
    "half": lambda t: t.chunk(2, -1)[-1],
    "expanded": lambda t: t.expand(2, *t.shape),
    "detached": lambda t: t.detach(),
}
WRITTEN = [name for name in VIEWS if name != "expanded"]  # others have elements that share memory


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("first", VIEWS)
def test_view_of_a_written_view(first, fresh):
    def f(x):
        out = []
        for view in VIEWS.values():
            b = x + 1 if fresh else x
            t = VIEWS[first](b)
            if first == "expanded":
                t = t[0]
            t.mul_(2)
            if t.dim() == 0 or t.shape[0] < 2:
                t = t.reshape(-1)[:1].expand(4)
            u = view(t)
            out += [u, u + 1, t, b]
        return out

    check(f, torch.arange(64.0).reshape(4, 4, 4))


@pytest.mark.parametrize("second", WRITTEN)
@pytest.mark.parametrize("first", WRITTEN)
def test_writes_along_a_chain_of_views(first, second):
    def f(x):
        b = x + 1
        t = VIEWS[first](b)
        t.mul_(2)
        if t.dim() == 0 or min(t.shape) < 2:
            return t, b
        u = VIEWS[second](t)
        u.add_(10)
        v = u[..., -1:]
        v.sub_(3)
        b.neg_()
        return b, t, u, v, v + 1

    check(f, torch.arange(125.0).reshape(5, 5, 5))


def test_results_of_an_op_with_several_written_out():
    def f(x):
        values, places = torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.long)
        v, p = values[1:, 2], places[1:, 2]
        torch.max(x, 1, out=(v, p))
        return values, places, v[1:] * 2, p[1:]

    check(f, torch.rand(3, 5))


RESHAPED = {
    "unsqueezed": lambda t: t.unsqueeze(0),
    "behind": lambda t: t.unsqueeze(-1),
    "flat": lambda t: t.view(-1),
    "squeezed": lambda t: t.squeeze(),
    "viewed": lambda t: t.view(2, 2),
    "of_row": lambda t: t.unsqueeze(0)[0],
}


@pytest.mark.parametrize("name", RESHAPED)
@pytest.mark.parametrize("shape", [(8, 1), (1, 4), (4, 1, 2)])
def test_written_through_another_shape_keeps_strides_of_dimensions_of_size_one(shape, name):
    def f(x):
        t = x[::2].transpose(0, -1).sigmoid()
        RESHAPED[name](t).mul_(2)
        return t, t.transpose(0, 1), t + 1

    check(f, torch.rand(*shape))


@pytest.mark.parametrize("name", ["unsqueezed", "behind", "flat", "squeezed", "of_row"])
@pytest.mark.parametrize("shape", [(8, 1), (1, 4)])
def test_graphs_of_ops_keep_them_too(shape, name):
    def f(x):
        t = x[::2].transpose(0, -1).sigmoid()
        RESHAPED[name](t).mul_(2)
        return t, t + 0

    x = torch.rand(*shape)
    found = frameloom.jit(f, backend="eager")(x)
    assert [t.stride() for t in found] == [t.stride() for t in f(x)]


@pytest.mark.parametrize("fn", [torch.unsafe_chunk, torch.Tensor.unsafe_split])
def test_views_of_which_schemas_say_nothing(fn):
    def f(x):
        y = x * 2
        fn(y, 2)[0].add_(1)
        return y

    check(f, torch.ones(4))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("first", VIEWS)
def test_strided_views_are_of_the_memory(first, early):
    """Elements before, between and behind those of the tensor that they are taken of."""

    def f(x):
        out = []
        for given in [((2,), (1,), 0), ((3,), (1,)), ((2, 3), (9, 1)), ((2, 2), (16, 3), 1)]:
            t = VIEWS[first](x)
            if first == "expanded":
                t = t[0]
            u = t.as_strided(*given) if early else None
            t.mul_(2)
            if u is None:
                u = t.as_strided(*given)
            out += [u * 1, u.add_(1) * 1, t * 1]
        return [*out, x]

    check(f, torch.arange(64.0).reshape(4, 4, 4))


def strided(x):
    return x.as_strided((2,), (1,))


def before_and_after(x):
    seen = strided(x)
    x.add_(1)
    return seen * 2


def after_itself(x):
    x.add_(1)
    return strided(x) * 2


def after_a_part(x):
    x[0].add_(1)
    return strided(x) * 2


def written(x):
    x.add_(1)
    strided(x).mul_(3)
    return x + strided(x)[0]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [before_and_after, after_itself, after_a_part, written])
def test_what_lies_between_the_elements_of_what_is_written(fn, dynamic):
    def rows(t):
        return t[:, ::2]

    def flat(t):
        return t[1:]

    for part in (rows, flat):
        compiled = frameloom.jit(fn, dynamic=dynamic)
        whole, own = (torch.arange(24.0).pow(2).view(4, 6) for _ in range(2))
        assert torch.equal(compiled(part(whole)), fn(part(own)))
        assert torch.equal(whole, own)
