"""The kinds of reductions: how two values are combined, and the value that changes nothing.

Rewrite rules, schedules, both code generators and the interpreter read these rows, so a new kind whose
combining op exists is one row and a lowering.
"""

from __future__ import annotations

from dataclasses import dataclass

from frameloom.ir.dtype import DType
from frameloom.ir.ops import ON_BOOLS, Op


@dataclass(frozen=True, slots=True)
class Reduction:
    """`op` combines two values: associative, commutative, of one dtype.

    `position`: the result is not the combined value (MAX or MIN) but the I64 position where it is, counted in
    the row-major order of the reduced axes: the first of equal ones, and the first NaN if there is one."""

    op: Op
    position: bool = False

    @property
    def replaces(self) -> Op:
        """The comparison by which a new value of MAX or MIN replaces the current one."""
        return Op.GT if self.op is Op.MAX else Op.LT

    @property
    def selects(self) -> bool:
        """Whether the result is always one of the values."""
        return self.op in (Op.MAX, Op.MIN, Op.AND, Op.OR) and not self.position

    @property
    def of_bools(self) -> bool:
        """Whether it is a reduction of BOOL only."""
        return self.op in (Op.AND, Op.OR)

    @property
    def cumulative(self) -> bool:
        """Whether one pass over the axis can give the results up to all positions."""
        return not self.position and not self.of_bools


REDUCTIONS = {
    "sum": Reduction(Op.ADD),
    "prod": Reduction(Op.MUL),
    "max": Reduction(Op.MAX),
    "min": Reduction(Op.MIN),
    "any": Reduction(Op.OR),
    "all": Reduction(Op.AND),
    "logaddexp": Reduction(Op.LOGADDEXP),  # of floats, on a GPU only
    "argmax": Reduction(Op.MAX, position=True),
    "argmin": Reduction(Op.MIN, position=True),
}


def combining_op(kind: str, dtype: DType) -> Op:
    """Returns the op that combines two values of `dtype`."""
    op = REDUCTIONS[kind].op
    return ON_BOOLS.get(op, op) if dtype is DType.BOOL else op


def identity(kind: str, dtype: DType) -> bool | int | float:
    """Returns the value that does not change the result: what a reduction of nothing gives."""
    op = combining_op(kind, dtype)
    if op in (Op.OR, Op.AND):
        return op is Op.AND
    if op in (Op.ADD, Op.MUL):
        return int(op is Op.MUL)
    low = op is not Op.MIN
    if dtype.is_float:
        return float("-inf") if low else float("inf")
    if dtype.kind == "u":
        return 0 if low else (1 << dtype.bits) - 1
    return -(1 << dtype.bits - 1) if low else (1 << dtype.bits - 1) - 1
