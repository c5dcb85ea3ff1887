"""Gradients of products are eager's to the last digit: of zeros, infinities and NaN, where the product overflows, of 16-bit floats."""

import pytest
import torch

from frameloom import jit

INF, NAN = float("inf"), float("nan")
ROWS = [
    [1e30, 1e30, 1e-30], [1e-30, 1e-30, 1e30], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, NAN],
    [INF, 2.0, 3.0], [INF, 0.0, 3.0], [NAN, 0.0, 3.0], [1.3, 2.7, -3.1], [1.3, -0.0, 1.1],
]  # fmt: skip
PRODUCTS = {
    "all": lambda x: x.prod(),
    "rows": lambda x: x.prod(-1),
    "columns": lambda x: torch.prod(x, 0, keepdim=True),
    "of wide": lambda x: x.prod(-1, dtype=torch.float64),
    "of all that are wide": lambda x: torch.prod(x, dtype=torch.float64),
    "of one": lambda x: x[0, 0].prod(0) + x[0, 1].prod(),
    "of none": lambda x: x[:0].prod(0) + x[:, :0].prod(1).sum(),
    "of what is changed before": lambda x: (x * 1).mul_(2).prod(0),
    "of columns that lie apart": lambda x: x.t().prod(1),
}


def passed_back(fn, x, twice=False):
    """Value and gradient, or what was refused."""
    x = x.clone().requires_grad_()
    try:
        result = fn(x)
        weights = torch.arange(1, result.numel() + 1).to(result.dtype).view(result.shape)
        total = (result * weights).sum()
        (given,) = torch.autograd.grad(
            total.real if x.is_complex() else total, x, create_graph=twice
        )
        if twice:
            (given,) = torch.autograd.grad((given * given).sum(), x)
    except RuntimeError as error:
        return type(error), str(error)
    return result.detach(), given, given.stride() if x.all() else None


def assert_same(got, want):
    if isinstance(want[0], type):
        assert got == want
        return
    assert torch.equal(got[0].nan_to_num(7), want[0].nan_to_num(7))
    assert torch.equal(got[1].nan_to_num(7), want[1].nan_to_num(7))
    assert torch.equal(got[1].isnan(), want[1].isnan())
    assert got[2] == want[2]  # with zeros the data decides


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gradients(name, dtype):
    fn = PRODUCTS[name]
    jitted = jit(fn)
    for row in ROWS:
        x = torch.tensor([row, [0.7, 1.9, -1.3]]).to(dtype)
        assert_same(passed_back(jitted, x), passed_back(fn, x))


def test_complex_numbers():
    x = torch.tensor([[1 + 2j, 0.5 - 1j, 3j], [1, 1 - 1j, -2]])
    for fn in (PRODUCTS["all"], PRODUCTS["rows"]):
        got, want = passed_back(jit(fn), x), passed_back(fn, x)
        assert torch.allclose(got[1], want[1])


def test_sizes_that_vary():
    for name in ("all", "rows", "columns"):
        fn = PRODUCTS[name]
        jitted = jit(fn, dynamic=True)
        for rows in (2, 3, 5):
            x = torch.rand(rows, rows + 1, dtype=torch.float64) * 2 - 1
            got, want = passed_back(jitted, x), passed_back(fn, x)
            assert torch.allclose(got[1], want[1], 1e-14, 0)


def test_a_gradient_of_the_gradient():
    for row in (ROWS[2], ROWS[8]):
        x = torch.tensor([row, [0.7, 1.9, -1.3]], dtype=torch.float64)
        for name in ("rows", "all"):
            fn = PRODUCTS[name]
            got, want = passed_back(jit(fn), x, twice=True), passed_back(fn, x, twice=True)
            assert torch.allclose(got[1], want[1], 1e-13)


def changed_result(x):
    result = x.prod(0)
    result.add_(1)
    return result


def changed_input(x):
    y = x * 1
    result = y.prod(0)
    y.add_(1)
    return result


@pytest.mark.parametrize("fn", [changed_result, changed_input])
def test_what_was_changed_behind_is_refused(fn):
    x = torch.tensor([1.5, 2.5])
    want = passed_back(fn, x)
    got = passed_back(jit(fn), x)
    assert want[0] is RuntimeError
    assert got[0] is RuntimeError


@pytest.mark.parametrize("which", ["input", "result"])
def test_what_is_changed_behind_the_call_is_refused(which):
    def refused(fn):
        x = torch.tensor([1.5, 2.5], requires_grad=True) * 1
        result = fn(x)
        (x if which == "input" else result).detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.backward()

    refused(PRODUCTS["all"])
    refused(jit(PRODUCTS["all"]))
