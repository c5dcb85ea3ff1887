"""`torch._foreach_` ops: every tensor of a list at once."""

import pytest
import torch

from tests.helpers import check

SHAPES = [(3,), (5, 7), (), (2, 0), (64,), (1, 9)]


def tensors(seed=0, dtype=torch.float32, shapes=SHAPES):
    made = torch.Generator().manual_seed(seed)
    return [torch.rand(s, generator=made).to(dtype) + 0.5 for s in shapes]


N = len(SHAPES)
NUMBERS = [0.5 * k - 1 for k in range(N)]
FUNCTIONAL = {
    "add alpha": lambda a, b, c: torch._foreach_add(a, b, alpha=-0.1),
    "add number": lambda a, b, c: torch._foreach_add(a, 2.5),
    "add numbers": lambda a, b, c: torch._foreach_add(a, NUMBERS),
    "add one tensor": lambda a, b, c: torch._foreach_add(a, b[2], alpha=0.5),
    "sub": lambda a, b, c: torch._foreach_sub(a, b, alpha=2),
    "sub number": lambda a, b, c: torch._foreach_sub(a, 1),
    "mul": lambda a, b, c: torch._foreach_mul(a, b),
    "mul numbers": lambda a, b, c: torch._foreach_mul(a, NUMBERS),
    "mul one tensor": lambda a, b, c: torch._foreach_mul(a, b[2]),
    "div": lambda a, b, c: torch._foreach_div(a, b),
    "div number": lambda a, b, c: torch._foreach_div(a, 3),
    "div one tensor": lambda a, b, c: torch._foreach_div(a, b[2]),
    "maximum": lambda a, b, c: torch._foreach_maximum(a, b),
    "minimum number": lambda a, b, c: torch._foreach_minimum(a, 0.75),
    "clamp": lambda a, b, c: torch._foreach_clamp_max(torch._foreach_clamp_min(a, 0.6), NUMBERS),
    "addcmul": lambda a, b, c: torch._foreach_addcmul(a, b, c, value=0.3),
    "addcmul numbers": lambda a, b, c: torch._foreach_addcmul(a, b, c, NUMBERS),
    "addcmul tensor": lambda a, b, c: torch._foreach_addcmul(a, b, c, torch.tensor(NUMBERS)),
    "addcdiv": lambda a, b, c: torch._foreach_addcdiv(a, b, c, value=-1),
    "addcdiv tensor": lambda a, b, c: torch._foreach_addcdiv(a, b, c, torch.tensor(NUMBERS)),
    "lerp": lambda a, b, c: torch._foreach_lerp(a, b, 0.1),
    "lerp numbers": lambda a, b, c: torch._foreach_lerp(a, b, NUMBERS),
    "lerp weights": lambda a, b, c: torch._foreach_lerp(a, b, c),
    "pow": lambda a, b, c: torch._foreach_pow(a, b),
    "pow number": lambda a, b, c: torch._foreach_pow(a, 2),
    "pow of a number": lambda a, b, c: torch._foreach_pow(0.9, a),
    "unary": lambda a, b, c: torch._foreach_exp(torch._foreach_neg(torch._foreach_sqrt(a))),
    "norm": lambda a, b, c: torch._foreach_norm(a),
    "rest": lambda a, b, c: torch._foreach_reciprocal(torch._foreach_tanh(torch._foreach_log1p(a))),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional(name):
    check(FUNCTIONAL[name], tensors(), tensors(1), tensors(2), graphs=1, breaks=0)


@pytest.mark.parametrize("name", ["add alpha", "mul", "div number", "addcdiv", "lerp", "unary"])
def test_half_precision(name):
    given = (tensors(k, torch.bfloat16) for k in range(3))
    check(FUNCTIONAL[name], *given, graphs=1, breaks=0, rtol=1e-2, atol=1e-2)


def test_whole_numbers():
    given = [torch.arange(s) for s in (3, 4, 5)], [torch.arange(s) + 1 for s in (3, 4, 5)]
    check(lambda a, b: (torch._foreach_add(a, b), torch._foreach_mul(a, 2.5)), *given)


def in_place(a, b, c):
    torch._foreach_mul_(a, 0.9)
    torch._foreach_add_(a, b, alpha=0.1)
    torch._foreach_addcdiv_(a, b, c, [0.1 * k for k in range(len(a))])
    torch._foreach_lerp_(a, b, 0.5)
    torch._foreach_sqrt_(a)
    torch._foreach_copy_(b, c)
    torch._foreach_zero_(c)
    torch._foreach_add_(c, 1)


def test_in_place():
    check(in_place, tensors(), tensors(1), tensors(2), graphs=1, breaks=0)


def test_in_place_with_another_dtype():
    def copied(a, b):
        torch._foreach_copy_(a, b)

    check(copied, tensors(), tensors(1, torch.float64), breaks=0)


def test_one_tensor_twice():
    def twice(a):
        torch._foreach_add_([a, a], [a, a])
        return a * 2

    check(twice, torch.ones(3), breaks=0)


def test_what_is_written_is_read_for_a_later_tensor():
    def crosswise(a, b):
        torch._foreach_add_([a, b], [b, a])

    check(crosswise, torch.ones(3), torch.full((3,), 5.0), breaks=0)


def test_parts_of_one_tensor():
    def parts(x):
        torch._foreach_mul_([x[:2], x[2:], x[1:3]], [2.0, 3.0, 5.0])
        return x

    check(parts, torch.ones(5), breaks=0)


def test_lists_that_do_not_match():
    check(lambda a, b: torch._foreach_add(a, b[1:]), tensors(), tensors())
