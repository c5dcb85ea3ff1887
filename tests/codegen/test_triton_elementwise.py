"""Functions of one element as a GPU gets them: interpreted, and compared with eager."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom import jit
from tests.codegen.interpreted_gpu import on_a_gpu
from tests.sweeps import elementwise
from tests.sweeps.__main__ import compared
from tests.sweeps.values import special

# What eager's own vectorized kernels give otherwise, but for those that are right where numbers are small.
LEFT_OUT = {*elementwise.EAGERS_OWN} - {"sigmoid", "erf", "sinh", "cosh", "logsigmoid"}
CUDAS_OWN = {"hardsigmoid", "hardswish"}
INTERPRETERS_OWN = {"to torch.bfloat16", "3 // x"}


@pytest.mark.filterwarnings("ignore")
def test_of_float64():
    values = special(torch.float64)
    values = values[(values.abs() < 100) & (values != 0)]
    table = {
        k: v for k, v in elementwise.ONE.items() if k not in LEFT_OUT | INTERPRETERS_OWN | CUDAS_OWN
    }
    with torch.no_grad(), on_a_gpu():
        assert list(compared(table, (values,), 64)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_signs_of_zeros_and_bytes_of_large_numbers(dtype):
    x = torch.tensor([0.0, -0.0, 2.0**31, 2.0**40 + 2.0**20, -1.0, 300.0], dtype=dtype)

    def program(x):
        return (-x).signbit(), x.to(torch.uint8), x.to(torch.int16)

    with on_a_gpu():
        for given, wanted in zip(jit(program)(x), program(x), strict=True):
            assert torch.equal(given, wanted)


def test_numbers_stay_in_float_beside_halves():
    """As CUDA's kernels have it; on the CPU eager rounds them first."""
    x = torch.ones(4, dtype=torch.float16)

    def program(x):
        return x + 65536 - 65534, (-65534 - x) + 65000

    with on_a_gpu():
        found = jit(program)(x)
    inf = float("inf")
    for given, wanted in zip(found, (inf, -inf), strict=True):
        assert torch.equal(given, torch.full_like(x, wanted))
    with on_a_gpu():
        third = jit(lambda x: x + 1 / 3)(x.bfloat16() * 0.001)
    assert torch.equal(third, (x.bfloat16() * 0.001).float().add(1 / 3).bfloat16())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_small_constants_of_16_bits(dtype):
    x = torch.tensor([1.0, -1.0], dtype=dtype)

    def program(x):
        return (
            x.masked_fill(x > 0, 1.23456e-4),
            torch.full_like(x, 6e-7),
            torch.where(x > 0, x, 1e-9),
        )

    with on_a_gpu():
        for given, wanted in zip(jit(program)(x), program(x), strict=True):
            assert torch.equal(given, wanted)


def test_numbers_of_lists_and_functions_as_cuda_takes_them():
    x = torch.tensor([0.359619140625, -3.376953125], dtype=torch.float16)

    def program(x):
        added = torch._foreach_add([x], 0.1)[0], torch._foreach_add([x], [x * x], alpha=1e-9)[0]
        return *added, torch.nn.functional.softshrink(x, 0.1), torch.nn.functional.elu(x, 0.1)

    with on_a_gpu():
        found = jit(program)(x)
    y, tenth = x.float(), torch.tensor(0.1).half().float()
    wanted = (
        y + 0.1, y + (x * x).float() * 1e-9,
        torch.where(y > tenth, y - tenth, y + tenth), torch.where(y > 0, y, y.expm1() * 0.1),
    )  # fmt: skip
    for given, one in zip(found, wanted, strict=True):
        assert torch.equal(given, one.half())


def test_lerp_beyond_its_ends():
    x = torch.tensor([438.75], dtype=torch.float16)
    assert jit(lambda x: torch.lerp(x, x * x, -2.7))(x).isnan().all()
    assert torch.equal(jit(lambda x: torch.lerp(x, -x, -0.7))(x), torch.lerp(x, -x, -0.7))


def test_orders_and_constants_of_cuda():
    x, a, b = torch.tensor([0.0]), torch.tensor([3e38]), torch.tensor([100.0])
    with on_a_gpu():
        assert jit(lambda x, a, b: x.addcdiv(a, b, value=3))(x, a, b).item() == pytest.approx(9e36)
        assert jit(lambda x, a, b: x.addcmul(a, b / 1e4, value=3))(x, a, b).item() < 1e37
        half = jit(torch.nn.functional.hardsigmoid)(torch.zeros(1, dtype=torch.float64))
    assert half.item() == 0.5000000149011612
