"""What comparing sizes gives is a condition of the code only where it matters: two graphs serve all sizes."""

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit
from tests.observe import assert_same_call, observe

SHAPES = [(4, 7), (2, 5), (3, 1), (1, 4), (1, 1), (6, 2), (2, 9), (5, 3), (0, 3), (2, 0)]


def no():
    return False


def heads(x):
    return x.unflatten(-1, (2, 4)).transpose(1, 2)


def causal(x):
    q = heads(x)
    return F.scaled_dot_product_attention(q, q, q, is_causal=x.shape[1] > 1)


def causal_in_place(x):
    q = heads(x)
    return F.scaled_dot_product_attention(q, q, q, None, 0.0, x.shape[1] != 1)


def causal_as_a_value(x, mask=None, causal=True):
    q = heads(x)
    wanted = q.shape[2] > 1 and mask is None and causal
    if wanted and mask is None and q.shape[2] > 1 and q.shape[2] < x.shape[1]:
        q = q[:, :, :2]
    return F.scaled_dot_product_attention(q, q, q, is_causal=wanted)


def causal_from_three_on(x):
    q = heads(x)
    return F.scaled_dot_product_attention(q, q, q, is_causal=x.shape[1] > 2)


def causal_with_more_keys(x):
    q, k = heads(x), heads(torch.cat([x, x], 1))
    return F.scaled_dot_product_attention(q, k, k, is_causal=x.shape[1] > 1)


def not_causal(x):
    q = heads(x)
    return F.scaled_dot_product_attention(q, q, q, is_causal=x.shape[1] == 1)


def asks_more(x):
    if x.shape[1] == 1 and no():
        return x + 1
    return x * 2


def asks_more_first(x):
    if no() and x.shape[1] == 1:
        return x + 1
    if x.shape[1] > 1 or not no():
        x = x * 3
    return x * 2


def asks_elsewhere(x):
    if x.shape[1] == 1:
        if no():
            x = x + 1
    elif isinstance(x, int):
        x = x + 2
    return x * 2


def told(x):
    return x * 2, x.shape[0] > 1, not x.shape[1] == 3, (x.shape[0], x.shape[1] < 2)


def told_often(x):
    a, b, _ = x.shape
    return (
        x * 2,
        a < 2,
        b < 2,
        a < 3,
        b < 3,
        a < 4,
        b < 4,
        a > 2,
        b > 2,
        a > 3,
        b > 3,
        a == 4,
        b == 4,
    )


def in_a_variable(x):
    several = x.shape[0] > 1
    y = x * 2
    return y + 1 if several else y - 1


def counted(x):
    return x * ((x.shape[0] > 1) + (x.shape[1] > 2))


def in_a_text(x):
    torch._assert(x.dim() == 3, f"not {x.shape} but {x.shape[0]:>3} and {x.shape[1]!r}")
    return x * 2


def text(x):
    return x * 2, f"{x.shape[0]}x{x.shape[1]}", f"{x.shape} {(x.shape[0], 'a')!r:>20}"


def text_that_decides(x):
    return x * (2 if f"{x.shape[0]}".startswith("1") else 3)


CASES = {
    causal: 2, causal_in_place: 2, causal_as_a_value: 2, causal_from_three_on: 4, causal_with_more_keys: 3, not_causal: 3, asks_more: 2,
    asks_more_first: 2, asks_elsewhere: 3, told: 2, told_often: 2, in_a_variable: 3, counted: 6, in_a_text: 2, text: 2, text_that_decides: 12,
}  # fmt: skip


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
@torch.no_grad()
def test_few_graphs(fn):
    frameloom.reset()
    jitted = jit(fn)
    for shape in SHAPES:
        x = torch.rand(*shape, 8)
        assert_same_call(observe(jitted, (x,), {}), observe(fn, (x,), {}), str(shape))
    assert frameloom.stats()["graphs"] <= CASES[fn]


def test_gradients_of_causal_attention():
    frameloom.reset()
    jitted = jit(causal)
    for shape in SHAPES[:-2]:
        mine, own = (torch.ones(*shape, 8).cumsum(1).requires_grad_() for _ in range(2))
        jitted(mine).square().sum().backward()
        causal(own).square().sum().backward()
        torch.testing.assert_close(mine.grad, own.grad)
    assert frameloom.stats()["graphs"] <= 2


@torch.no_grad()
def test_a_question_that_is_answered_elsewhere_is_asked_where_the_program_does():
    asked = []

    def note(n):
        asked.append(n)
        return False

    def fn(x):
        if x.shape[0] == 1 and note(x.shape[1]):
            return x + 1
        return x * 2

    jitted = jit(fn)
    for shape in [(3, 2), (2, 4), (1, 5), (4, 4), (1, 3), (1, 7)]:
        x = torch.rand(shape)
        assert torch.equal(jitted(x), x * 2)
    assert asked == [5, 3, 7]


@torch.no_grad()
def test_a_question_that_cannot_be_followed():
    def fn(x, other):
        if x.shape[0] == 1 and other.sum() > 0:
            return x + 1
        if x.shape[0] == 1 and other.missing:
            return x
        return x * 2

    jitted = jit(fn)
    for shape in [(3, 2), (2, 4), (5, 5), (1, 3), (4, 4)]:
        x = torch.rand(shape)
        for other in (torch.ones(2), -torch.ones(2)):
            assert_same_call(
                observe(jitted, (x, other), {}), observe(fn, (x, other), {}), str(shape)
            )


@torch.no_grad()
def test_what_a_loop_asks():
    def fn(x):
        while x.shape[0] > 1 and not no():
            x = x[1:] + x[:-1]
        return x

    jitted = jit(fn)
    for n in (3, 5, 1, 4, 2):
        x = torch.rand(n, 2)
        torch.testing.assert_close(jitted(x), fn(x))


@pytest.mark.parametrize(
    "use",
    [
        lambda n, large: n == large,
        lambda n, large: (1, n, 2).count(large),
        lambda n, large: n in (1, large),
        lambda n, large: (n * large) % 7,
        lambda n, large: str(n * large),
        lambda n, large: large // n,
        lambda n, large: large - n,
        lambda n, large: pow(n, 3, large),
        lambda n, large: pow(n, 3, 5),
    ],
)
@pytest.mark.parametrize("large", [10**19, -(2**63), 2**63])
def test_sizes_beside_numbers_beyond_64_bits(use, large):
    def asked(x):
        found = use(x.shape[0], large)
        return found, x + 1 if found else x - 1

    target = jit(asked, dynamic=True, backend="eager")
    for size in (3, 4, 7):
        assert_same_call(observe(target, (torch.ones(size),)), observe(asked, (torch.ones(size),)), f"{size}")  # fmt: skip
