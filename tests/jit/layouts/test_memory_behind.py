"""Some losses leave the memory of what they summed up behind their one element; programs that look there find as much as plainly."""

import pytest
import torch
import torch.nn.functional as F

import frameloom


def behind_a_break(x, loss):
    t = loss(x, torch.ones(6))
    frameloom.graph_break()
    return t.as_strided((2,), (1,), 1).shape, t.untyped_storage().nbytes()


def in_a_graph(x, loss):
    return loss(x, torch.ones(6)).as_strided((2,), (1,), 1).shape


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.soft_margin_loss, F.huber_loss])
@pytest.mark.parametrize("fn", [behind_a_break, in_a_graph])
def test_memory_behind_a_loss(fn, loss, requires_grad):
    found = []
    for side in (fn, frameloom.jit(fn)):
        try:
            found.append(side(torch.arange(6.0, requires_grad=requires_grad), loss))
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_loss_stays_in_the_graph_where_nobody_looks():
    def fn(x):
        return F.mse_loss(x, torch.ones(6)) * 2, F.mse_loss(x, torch.zeros(6))

    assert len(frameloom.explain(fn)(torch.arange(6.0)).graphs) == 1


PUT_BACK = {
    "select": lambda x: x.select_scatter(x[0], 0, 0),
    "slice": lambda x: x.slice_scatter(x[:2], 0, 1, 3),
    "diagonal": lambda x: x.diagonal_scatter(x.diagonal() * 2),
}


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("name", PUT_BACK)
def test_what_lies_between_the_elements_of_what_is_put_back(name, step):
    """The result lies as the tensor does, and has what is between its elements there, too."""

    def fn(x):
        return PUT_BACK[name](x).as_strided((3, 3), (1, 3), 1)

    x = torch.arange(8.0 * 12).view(8, 12)[::step, ::step]
    assert torch.equal(frameloom.jit(fn)(x), fn(x))
