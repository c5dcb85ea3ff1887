"""Small integers that the code generator keeps in 32-bit lanes are 64-bit again where they are stored or folded."""

import pytest
import torch

from frameloom import explain, jit
from frameloom.codegen.cpp.vector import host_isa
from tests.helpers import check


@pytest.mark.parametrize("shape", [(3, 4), (5, 33), (7, 64)])
@pytest.mark.parametrize("fn", [
    lambda x: (x + 1).sum(0) * 2, lambda x: x + 1, lambda x: (x + 1).sum(1), lambda x: (x.long() * 3).amax(0),
    lambda x: torch.arange(x.shape[1]) + x, lambda x: torch.arange(x.shape[1]) * 2 - 1, lambda x: x.long().sum(),
])  # fmt: skip
def test_sums_and_stores(fn, shape):
    check(fn, torch.randn(shape) > 0, graphs=1, breaks=0, calls=1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_bounds_beside_those_of_wider_numbers(dtype):
    def fn(x, y):
        return x.clamp(-1 if x.is_signed() else 1, 5), y.clamp(-1, 5)

    for shape in ((), (1,), (70,)):
        x, y = torch.full(shape, 9, dtype=dtype), torch.full(shape, -9)
        for made, wanted in zip(jit(fn)(x, y), fn(x, y), strict=True):
            torch.testing.assert_close(made, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_all_but_one_of_many_lanes_are_gathered(dtype):
    def fn(x, n):
        for part in x.split(1):
            part.add_(n)

    jitted = jit(fn, fullgraph=True)
    for n in (1, 2):
        a, b = torch.arange(64, dtype=dtype), torch.arange(64, dtype=dtype)
        fn(a, n)
        jitted(b, n)
        assert a.equal(b)


def test_a_long_body_of_bytes():
    """With a byte in each lane, positions take four registers: g++ worked for minutes on 1,000 of these pieces."""

    def fn(x, n):
        parts = x.unbind(0)
        for part in parts:
            part.add_(n)
        return sum((part * k for k, part in enumerate(parts)), x[:3])

    a, b = (torch.arange(300).to(torch.int8) for _ in range(2))
    wanted, made = fn(a, 2), jit(fn, fullgraph=True)(b, 2)
    assert made.equal(wanted) and b.equal(a)


@pytest.mark.skipif(host_isa() is None, reason="there are no vectors")
@pytest.mark.parametrize("given, made", [(torch.int8, torch.bfloat16), (torch.uint8, torch.float16), (torch.bfloat16, torch.int8)])  # fmt: skip
def test_16_bit_floats_and_bytes_by_way_of_one_register(given, made):
    """With a lane for each 16 bits, the 32-bit floats in between took two registers: this was 19 times as slow."""

    def fn(x):
        return x.to(made)

    x = torch.arange(-100, 100).abs().to(given)
    source, lanes = explain(fn)(x).kernels[0].source, host_isa().lanes(4)
    assert f"32x{2 * lanes}" not in source
    assert jit(fn)(x).equal(fn(x))
