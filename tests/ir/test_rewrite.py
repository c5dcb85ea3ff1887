"""What rewriting does and leaves alone; that each rule is exact: tests/exhaustive."""

import math

import pytest
import torch

from frameloom.ir.dtype import DType
from frameloom.ir.interp import compute
from frameloom.ir.node import Axis, Node, axis, cast, const, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.rewrite import Rewriter
from frameloom.ir.rules import ALL_RULES, GPU_RULES
from frameloom.ir.rules.casts import holds_all


def test_rounding_is_kept():
    x = load(Buffer("x", DType.F32, (4,), (1,), Kind.INPUT), axis(Axis("i0x4", 4)))
    rewriter = Rewriter(ALL_RULES)
    rounded = cast(DType.F32, cast(DType.BF16, x))
    assert rewriter.roots([rounded]) == [rounded]
    half = load(Buffer("h", DType.BF16, (4,), (1,), Kind.INPUT), axis(Axis("i0x4", 4)))
    assert rewriter.roots([cast(DType.BF16, cast(DType.F32, half))]) == [half]
    assert not holds_all(DType.BF16, DType.F16) and not holds_all(DType.F32, DType.I32)


@pytest.mark.parametrize("narrow", [DType.U8, DType.I8, DType.I16])
@pytest.mark.parametrize("source", [DType.U8, DType.I8, DType.I16, DType.I32])
def test_integers_that_wrap_around_are_cast_through(source, narrow):
    numbers = torch.tensor([-1, -128, 0, 5, 127, 200, 255, 300]).to(source.to_torch())
    x = Buffer("x", source, (8,), (1,), Kind.INPUT)
    value = cast(DType.I32, cast(narrow, load(x, axis(Axis("i0x8", 8)))))
    (rewritten,) = Rewriter(ALL_RULES).roots([value])
    assert torch.equal(compute(rewritten, {x: numbers}), compute(value, {x: numbers}))


def test_choosing_among_rounded_values_rounds_nothing():
    at = axis(Axis("i0x4", 4))
    a, b = (cast(DType.F32, load(Buffer(n, DType.BF16, (4,), (1,), Kind.INPUT), at)) for n in "ab")
    rewriter = Rewriter(ALL_RULES)
    for value, exact in (
        (Node(Op.MAX, DType.F32, (a, const(0.5, DType.F32))), True),
        (Node(Op.MIN, DType.F32, (a, Node(Op.NEG, DType.F32, (b,)))), True),
        (Node(Op.MAX, DType.F32, (a, const(0.1, DType.F32))), False),
        (Node(Op.ADD, DType.F32, (a, b)), False),
    ):
        rounded = cast(DType.F32, cast(DType.BF16, value))
        assert rewriter.roots([rounded]) == [value if exact else rounded]


def test_fuel_stops_rewriting():
    x = load(Buffer("x", DType.F32, (4,), (1,), Kind.INPUT), axis(Axis("i0x4", 4)))
    negated = x
    for _ in range(4):
        negated = Node(Op.NEG, DType.F32, (negated,))
    assert Rewriter(ALL_RULES).roots([negated]) == [x]
    assert Rewriter(ALL_RULES, fuel=0).roots([negated]) == [negated]
    assert Rewriter(ALL_RULES, fuel=1).roots([negated])[0] is negated.srcs[0].srcs[0]


@pytest.mark.parametrize(
    ("node", "folds"),
    [
        (cast(DType.I32, const(math.inf, DType.F32)), False),
        (cast(DType.I64, const(math.nan, DType.F32)), False),
        (cast(DType.I32, const(3e10, DType.F64)), False),
        (cast(DType.U8, const(-1.5, DType.F32)), False),
        (cast(DType.I32, const(2.5, DType.F32)), True),
        (Node(Op.EXP, DType.F32, (const(1.5, DType.F32),)), False),
        (Node(Op.ADD, DType.F32, (const(1.5, DType.F32), const(2.5, DType.F32))), True),
    ],
)
def test_kernels_for_a_gpu_fold_what_all_devices_compute_alike(node, folds):
    """A GPU gives the largest int for infinity, a CPU the smallest, and functions that are approximated are so in other ways."""
    assert (Rewriter(GPU_RULES).roots([node])[0].op is Op.CONST) is folds
    assert Rewriter(ALL_RULES).roots([node])[0].op is Op.CONST
