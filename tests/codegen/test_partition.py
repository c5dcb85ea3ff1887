"""Kernels cut into launches, interpreted: reductions of what other reductions make."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom import jit
from tests.codegen.interpreted_gpu import on_a_gpu

PROGRAMS = {
    "product of two products": lambda m, n, v: (m + 1, (m * n).sum(-1)),
    "sum of two products": lambda m, n, v: ((m + n).sum(-1), m * 2, n * 3),
    "one along another axis": lambda m, n, v: ((m * n).sum(0), m * 2, (n * v.sum()).amax(-1)),
    "a norm of one": lambda m, n, v: ((torch.nn.functional.layer_norm(m, (3,)) * n).sum(-1), m),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reduction_of_several_of_which_one_is_kept(name):
    a, w, v = torch.randn(4, 3), torch.randn(3, 3), torch.randn(3, 3)

    def program(a, w, v):
        return PROGRAMS[name](a @ w, a @ v, v)

    with on_a_gpu():
        found = jit(program)(a, w, v)
    torch.testing.assert_close(found, program(a, w, v))


@pytest.mark.parametrize("dynamic", [True, False])
def test_deviations_of_equal_numbers(dynamic):
    def program(x):
        return x.std(), x.var(0), *torch.std_mean(x, 1)

    with on_a_gpu():
        jitted = jit(program, dynamic=dynamic)
        for shape in ((3, 9), (2, 100), (2, 5000)):
            deviation, *variances, mean = jitted(torch.full(shape, 0.1))
            assert not deviation and not any(v.any() for v in variances)
            torch.testing.assert_close(mean, torch.full(shape[:1], 0.1))


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_long_sum_of_one_number(dynamic):
    """What each chunk sums to does not depend on which chunk it is."""

    def program(x, n):
        return x + torch.full((n, 2), 0.5).sum()

    with on_a_gpu():
        jitted = jit(program, dynamic=dynamic)
        for n in (65536, 3, 70001):
            x = torch.ones(3)
            assert torch.equal(jitted(x, n), program(x, n))
