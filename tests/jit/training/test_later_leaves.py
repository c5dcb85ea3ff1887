"""`requires_grad_()` behind a graph, of a tensor of which the graph gives a view: by the writes that the view counts since it was made, autograd
tells whether it follows its base."""

import pytest
import torch

from frameloom import jit


def of_an_input(y):
    view = y[0]
    view += 1
    y.requires_grad_()
    return y, view


def of_a_part_that_data_chose(y):
    view = y[y.argmax()]
    view.pow_(2)
    y.requires_grad_()
    return y, view


def behind_a_break(y):
    first = y[:2]
    y.add_(1)
    second, third = y[1:], y[2:]
    third.mul_(2)
    print(end="")
    y.requires_grad_()
    return y, first, second, third, y.view(-1)


def of_a_new_tensor(y):
    new = y * 1
    first = new[:2]
    new.add_(1)
    second = new[1:]
    print(end="")
    new.requires_grad_()
    return new, first, second


def in_a_list(y):
    kept = [torch.ones(len(y)) * 1]
    kept.append(kept[0][0])
    kept[0].add_(y[0])
    kept[0].requires_grad_()
    return tuple(kept)


def not_written(y):
    view = y[0]
    y.requires_grad_()
    return y, view


@pytest.mark.parametrize(
    "fn",
    [
        of_an_input,
        of_a_part_that_data_chose,
        behind_a_break,
        of_a_new_tensor,
        in_a_list,
        not_written,
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_view_follows_its_base_if_something_was_written_since(fn):
    def seen(call):
        base, *views = call(torch.arange(3.0) * 1)
        found = [(v.requires_grad, v.is_leaf, v._base is base) for v in views]
        sum(v.sum() for v in views).backward()
        return found, [v.tolist() for v in views], base.grad

    got, want = seen(jit(fn)), seen(fn)
    assert got[:2] == want[:2]
    assert (got[2] is None) == (want[2] is None)
    assert want[2] is None or torch.equal(got[2], want[2])
