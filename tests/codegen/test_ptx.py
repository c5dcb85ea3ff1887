"""Functions of fp32 on a GPU, for every float there is, beside eager's."""

import re

import pytest
import torch

import frameloom
from frameloom.codegen.triton.ptx import FUNCTIONS, helpers

CHUNK = 1 << 28
EXACT = [
    "exp", "log", "erf", "tanh", "round", "trunc", "exp2", "rsqrt", "floor", "ceil", "sqrt", "sigmoid", "reciprocal",
    "sin", "cos", "tan", "log2", "log10", "log1p", "expm1", "erfc", "sinh", "cosh", "atanh", "lgamma",
]  # fmt: skip
# Triton's libdevice is older than CUDA 13 and has other polynomials for these.
NEAR = ["atan", "asin", "acos", "asinh", "acosh"]


def ordered(x: torch.Tensor) -> torch.Tensor:
    """Integers in the floats' order: neighbouring floats are neighbours."""
    bits = x.view(torch.int32).long()
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def differing(name: str) -> tuple[int, int, int]:
    """(how many floats have another result than eager's, the bits of the first of them, by how many ulp at most)"""
    f = getattr(torch, name)
    compiled = frameloom.jit(lambda x: f(x))
    count, first, worst = 0, 0, 0
    for start in range(-(1 << 31), 1 << 31, CHUNK):
        bits = torch.arange(start, start + CHUNK, device="cuda").to(torch.int32)
        x = bits.view(torch.float32)
        found, expected = compiled(x), f(x)
        wrong = found.view(torch.int32) != expected.view(torch.int32)
        wrong &= ~(found.isnan() & expected.isnan())
        if some := int(wrong.sum()):
            if not count:
                first = int(bits[wrong][0]) & 0xFFFFFFFF
            count += some
            distance = (ordered(found[wrong]) - ordered(expected[wrong])).abs().max()
            worst = max(worst, int(distance))
    return count, first, worst


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXACT)
def test_every_float_bit_for_bit(name):
    with torch.no_grad():
        count, first, worst = differing(name)
    assert count == 0, f"{count} floats differ by up to {worst} ulp, the first is {first:#010x}"


@pytest.mark.gpu
@pytest.mark.parametrize("name", NEAR)
def test_every_float_within_four_ulp(name):
    with torch.no_grad():
        count, first, worst = differing(name)
    assert worst <= 4, f"{count} floats differ by up to {worst} ulp, the first is {first:#010x}"


@pytest.mark.parametrize("name", [name for name, _ in FUNCTIONS.values()])
def test_a_function_declares_the_registers_it_uses(name):
    text = helpers()[name]
    declared = set(re.findall(r"\w+", " ".join(re.findall(r"\.reg \.\w+ ([^;]+);", text))))
    body = re.search(r'elementwise\("(.*?)"', text).group(1)
    body = re.sub(r"\.reg [^;]+;", "", body)
    used = {
        word
        for line in body.strip("{} ").split(";")
        for word in re.findall(r"[^\s,]+", re.sub(r"^@", "", line.strip()).partition(" ")[2])
        if re.fullmatch(r"[a-z]\w*", word)
    }
    assert used <= declared
