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
INTERPRETERS_OWN = {"to torch.bfloat16", "3 // x"}


@pytest.mark.filterwarnings("ignore")
def test_of_float64():
    values = special(torch.float64)
    values = values[(values.abs() < 100) & (values != 0)]
    table = {k: v for k, v in elementwise.ONE.items() if k not in LEFT_OUT | INTERPRETERS_OWN}
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
