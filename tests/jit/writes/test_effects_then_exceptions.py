"""What a program does before it raises is done: writes to tensors and Python objects, random numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn import Parameter

import frameloom

FAILS = {
    "index": lambda x, i: x[i],
    "embedding": lambda x, i: F.embedding(i, x),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "bincount": lambda x, i: torch.bincount(-i),
    "division": lambda x, i: i // (i - 9),
    "cholesky": lambda x, i: torch.linalg.cholesky(x[:2, :2] * 0 - 1),
    "drawn": lambda x, i: torch.multinomial(-x - 1, 1),
    "empty": lambda x, i: x[:0].max(),
    "masked": lambda x, i: x[x > 100].max(),
    "item": lambda x, i: x[i.item()],
}
GOOD = {"index": torch.tensor([1]), "embedding": torch.tensor([2]), "division": torch.tensor([3])}


class State:
    def __init__(self):
        self.log, self.n, self.w = [], 0, Parameter(torch.ones(3))


def before_and_after(op, x, i, o):
    x.mul_(2)
    o.log.append(1)
    o.n += 1
    result = op(x, i)
    o.log.append(2)
    x.add_(1)
    return result


def behind_a_draw(op, x, i, o):
    y = F.dropout(x, 0.5)
    x.mul_(2)
    o.log.append(1)
    return op(y * 0 + x, i), y


def inside_a_try(op, x, i, o):
    x.add_(1)
    o.log.append(1)
    try:
        return op(x, i)
    except Exception as error:
        o.log.append(type(error).__name__)
    finally:
        o.log.append("finally")
    return x * 2


def in_a_callee(op, x, i, o):
    def inner(z):
        o.log.append(1)
        return op(z, i) + 0

    x[0] = 5.0
    return inner(x)


def behind_a_break(op, x, i, o):
    x.mul_(2)
    print(end="")
    o.log.append(1)
    x.mul_(2)
    return op(x, i)


def behind_a_scatter(op, x, i, o):
    x.index_put_((torch.tensor([0]),), torch.tensor(1.0))
    o.log.append(1)
    return op(x, i)


def between_a_scatter_and_what_is_drawn_there(op, x, i, o):
    x[torch.tensor([0])] = 4.0
    y = (x * 1).uniform_()
    try:
        return op(x, i) + y.sum()
    except Exception as error:
        o.log.append(type(error).__name__)


def with_gradients(op, x, i, o):
    y = (o.w * 2).sum()
    x.mul_(2)
    o.log.append(1)
    return op(x, i), (y * x.sum()).detach()


PROGRAMS = [before_and_after, behind_a_draw, inside_a_try, in_a_callee, behind_a_break, behind_a_scatter, between_a_scatter_and_what_is_drawn_there, with_gradients]  # fmt: skip


def seen(fn, op, indices):
    found, o = [], State()
    torch.manual_seed(0)
    for i in indices:
        x = torch.arange(12.0).reshape(3, 4)
        try:
            result = fn(op, x, i.clone(), o)
        except Exception as error:
            result = type(error).__name__
        found.append((str(result), x.tolist(), list(o.log), o.n, torch.rand(1).item()))
    return found


@pytest.mark.parametrize("name", FAILS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_what_comes_before(program, name):
    bad = torch.tensor([9])
    indices = [bad, GOOD.get(name, bad), bad]
    wanted = seen(program, FAILS[name], indices)
    assert seen(frameloom.jit(program), FAILS[name], indices) == wanted


def test_a_callback_that_plain_code_calls():
    """The frame hook compiles it, and no call of it can start anew."""

    def program(x, rows):
        log = []

        def key(i):
            log.append(1)
            x.mul_(2)
            return int(x[i].sum())

        print(end="")
        try:
            sorted(rows, key=key)
        except IndexError:
            log.append("IndexError")
        return log, x + 1

    for jit in (lambda f: f, frameloom.jit):
        fn, x = jit(program), torch.ones(3)
        for rows in ([0, 1], [0, 5], [1, 0, 7]):
            result = fn(x, [torch.tensor([r]) for r in rows])
        if jit is not frameloom.jit:
            wanted = str(result), x.clone()
    assert str(result) == wanted[0]
    assert torch.equal(x, wanted[1])


def test_an_op_of_the_program_that_raises():
    @torch.library.custom_op("effects_then::checked", mutates_args=())
    def checked(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 10:
            raise ValueError("too large")
        return x.clone()

    checked.register_fake(lambda x: torch.empty_like(x))

    def program(x, log):
        x.mul_(2)
        log.append(1)
        return checked(x) + 1

    fn = frameloom.jit(program)
    for value in (1.0, 4.0, 2.0):
        x, log = torch.full((2,), value), []
        if value == 4:
            with pytest.raises(ValueError, match="too large"):
                fn(x, log)
        else:
            assert fn(x, log).tolist() == [value * 2 + 1] * 2
        assert (x.tolist(), log) == ([value * 2] * 2, [1])
