"""Comparisons that come out the same in every case."""

import pytest

from frameloom.ir import index
from frameloom.ir.cases import decide_by_cases
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, axis, binary, load, where
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind

I = axis(Axis("i0x32", 32))  # noqa: E741
J = axis(Axis("i1x8", 8))
LOADED = load(Buffer("x", DType.I64, (32,), (1,), Kind.INPUT), I)


def number(value):
    return index.index(value)


def less(a, b):
    return binary(Op.LT, a, b)


STEP = index.sub(I, where(less(I, number(1)), number(-1), index.add(I, number(-1))))


@pytest.mark.parametrize(
    "op, a, b, answer",
    [
        (Op.NE, STEP, number(1), False),
        (Op.EQ, STEP, number(1), True),
        (Op.LE, STEP, number(1), True),
        (Op.LT, STEP, number(1), False),
        (Op.GE, number(1), STEP, True),
        (Op.GT, STEP, number(2), False),
        (Op.EQ, where(less(I, J), number(3), number(4)), number(3), None),
        (Op.GT, where(less(I, J), number(3), number(4)), number(2), True),
        (Op.LT, where(less(I, number(5)), I, number(0)), number(5), True),
        (Op.LT, where(less(I, number(5)), I, number(5)), number(5), None),
        (Op.GT, where(less(I, J), index.add(LOADED, number(1)), LOADED), LOADED, None),
        (Op.LT, I, number(40), None),
    ],
)
def test_decide_by_cases(op, a, b, answer):
    assert decide_by_cases(op, a, b) is answer
