"""A compiled graph that raises means another run, unless the fault is our own and somebody looks for such."""

import pytest
import torch

import frameloom
from frameloom.capture._capture import RunPlainly
from frameloom.capture.speculation.assume import restarting, verified
from tests.helpers import check


def raising(_):
    raise IndexError("out of range")


def stopping(_):
    raise RunPlainly(IndexError("out of range"))


def test_an_exception_means_a_plain_run():
    with pytest.raises(RunPlainly):
        restarting(raising)(1)


def test_what_the_recorded_graph_raises_too_means_a_plain_run():
    with pytest.raises(RunPlainly):
        verified(stopping, raising)(1)


def test_what_it_does_not_raise_comes_through():
    with pytest.raises(IndexError, match="out of range"):
        verified(stopping, lambda x: x)(1)


def test_what_was_drawn_is_drawn_again():
    def drawing(_):
        drawn.append(torch.rand(3))
        raise IndexError

    drawn: list[torch.Tensor] = []
    for _ in range(2):
        with pytest.raises(RunPlainly):
            restarting(drawing)(1)
    with pytest.raises(RunPlainly):
        verified(stopping, drawing)(1)
    assert len(drawn) == 3
    assert all(torch.equal(d, drawn[0]) for d in drawn)


@pytest.mark.parametrize("grad", [False, True])
def test_a_check_between_dropouts(grad):
    def f(x, n):
        y = torch.dropout(x * 2, 0.5, True)
        if (n > 3).any():
            raise ValueError("too many")
        return torch.dropout(y.sin(), 0.5, True)

    x = torch.randn(50, requires_grad=grad)
    explanation = check(f, x, torch.tensor([1, 2]), graphs=1)
    assert not explanation.breaks
    for bad in (3, 4):
        check(f, x, torch.tensor([1, bad]))


def test_the_run_that_checks_an_exception_prints_nothing(capfd):
    jitted = frameloom.jit(lambda x, n: x + 7 % n, backend="eager")
    for n in (3, 2, 5):
        jitted(torch.ones(2), n)
    with pytest.raises(ZeroDivisionError):
        jitted(torch.ones(2), 0)
    assert not capfd.readouterr().err


def test_a_backend_that_fails_is_told_where_somebody_looks():
    def failing(gm, examples):
        return lambda *inputs: raising(inputs)

    with pytest.raises(IndexError, match="out of range"):
        frameloom.jit(lambda x: x + 1, backend=failing)(torch.ones(1))
