"""A tensor that was written through a view is none: its views behind that are views of it, whatever the graph computed it by."""

import pytest
import torch

import frameloom

WRITES = {
    "a dimension more": lambda t: t.unsqueeze(0)[0].add_(1),
    "a dimension fewer": lambda t: t.squeeze(-1).mul_(2),
    "flat": lambda t: t.view(-1)[:2].zero_(),
    "transposed": lambda t: t.t()[0].fill_(3),
    "a diagonal": lambda t: t.diagonal().add_(1),
    "a part": lambda t: t[1:].neg_(),
    "other numbers": lambda t: t.view(torch.int32).fill_(1),
    "the whole of it": lambda t: t.view(-1).copy_(torch.arange(t.numel())),
}
VIEWS = {
    "a row": lambda t: t[0],
    "transposed": lambda t: t.t(),
    "flat": lambda t: t.view(-1),
    "other numbers": lambda t: t.view(torch.int32),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
def test_it_is_the_base_of_its_views(how, write):
    def fn(x):
        t = x + 1
        WRITES[write](t)
        return t, *(view(t) for view in VIEWS.values()), x.sum()

    jitted = frameloom.jit(fn, **how)
    for shape in ((3, 1), (4, 4), (4, 4)):
        seen = []
        for side in (fn, jitted):
            t, *views, _ = side(torch.ones(shape))
            views[0].add_(1)
            known = [(v._base is t, v.storage_offset(), v.stride(), v.tolist()) for v in views]
            seen.append((t._is_view(), t.stride(), t.tolist(), known))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("how", [{}, {"backend": "eager"}], ids=str)
def test_a_part_at_an_offset_is_one(how):
    def fn(x):
        t = torch.ones(3, 4)
        t.view(-1)[5:] = x
        return t.storage_offset(), t, t[1, 1:], t.view(torch.int32)[2, 3:]

    x = torch.arange(7.0)
    for found, expected in zip(frameloom.jit(fn, **how)(x)[1:], fn(x)[1:], strict=True):
        assert torch.equal(found, expected)
        assert found.storage_offset() == expected.storage_offset()
        assert found._is_view() == expected._is_view()


@pytest.mark.parametrize("how", [{}, {"backend": "eager"}], ids=str)
def test_a_history_can_be_written_to_it_in_a_later_frame(how):
    """Where gradient mode is off between the frames, too."""

    def fn(x, weight):
        with torch.no_grad():
            frameloom.graph_break()
        t = x.exp()
        t.view(-1)[0] = 0.5
        row = t[1]
        frameloom.graph_break()
        t.addcmul_(weight, weight)
        return row

    results = []
    for side in (fn, frameloom.jit(fn, **how)):
        weight = torch.ones(3, requires_grad=True)
        row = side(torch.zeros(3, 3), weight)
        row.sum().backward()
        results.append((row.tolist(), weight.grad.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
def test_a_view_of_a_view_that_was_made_without_gradients_refuses_one(how):
    def fn(x):
        part = (x + 1)[1:]
        with torch.no_grad():
            return part[0]

    for side in (fn, frameloom.jit(fn, **how)):
        row = side(torch.ones(3, 3))
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            row.mul_(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
def test_a_view_of_an_argument_that_is_a_view_gets_a_history(how):
    """Autograd makes it anew where writes were counted since it was made: those to `.data` are not."""

    def fn(x):
        x.data.mul_(2)
        return x[0]

    for side in (fn, frameloom.jit(fn, **how)):
        row = side(torch.ones(4).view(2, 2))
        _ = row.is_leaf
        factor = torch.ones((), requires_grad=True)
        row.mul_(factor)
        row.sum().backward()
        assert factor.grad == 4
