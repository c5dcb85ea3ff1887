"""Small matrix products on a GPU, as sums.

One launch costs less than a library call, and later operations fuse with it.

Products of 16-bit numbers are exact in F32, and are summed in F32, as in the library.
"""

from __future__ import annotations

from frameloom.ir.lower.expr import Expr, Number
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, product, read
from frameloom.ir.node import Axis, axis
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import fold
from frameloom.ir.symbolic.compare import at_most, surely_positive
from frameloom.ir.symbolic.expr import Size

MAX_MULTIPLICATIONS = 1 << 20  # multiplications
MAX_TERMS = 1024  # terms of a sum
MAX_ROW_MULTIPLICATIONS = 2048  # multiplications of a row


def _product(call: Call, a: Ref, b: Ref) -> Expr:
    """Returns a @ b at the position of the result; the last two dimensions are those of the matrices."""
    length = a.shape[-1]
    if not is_cuda(a.buffer.device) or a.dtype is None or not a.dtype.is_float:
        raise Decline
    # For symbolic sizes, the library does products that may exceed MAX_MULTIPLICATIONS, except those of many
    # rows and few columns.
    total = product(call.shape) * length
    few = a.ndim == 2 and at_most(length * call.shape[1], MAX_ROW_MULTIPLICATIONS)
    if not (surely_positive(total) and at_most(length, MAX_TERMS)):
        raise Decline
    if not (at_most(total, MAX_MULTIPLICATIONS) or (few and isinstance(total, Size))):
        raise Decline
    *batch, row, column = call.at()
    k = Axis("k", length)
    left, right = read(a, [*batch, row, axis(k)]), read(b, [*batch, axis(k), column])
    return Expr(fold("sum", (k,), (left.wide() * right.wide()).node))


def _sum(call: Call, bias: Ref, value: Expr, beta: Number, alpha: Number) -> Expr:
    if alpha != 1:
        value = value * float(alpha)
    if beta == 0:
        return value  # the elements of `bias` do not count, not even NaN
    added = read(bias, call.at()).wide()
    return value + (added if beta == 1 else added * float(beta))


@lowering("aten.mm.default", "aten.bmm.default")
def mm(call: Call, a: Ref, b: Ref) -> Expr:
    return _product(call, a, b)


@lowering("aten.addmm.default", "aten.baddbmm.default")
def addmm(call: Call, bias: Ref, a: Ref, b: Ref, beta: Number, alpha: Number) -> Expr:
    return _sum(call, bias, _product(call, a, b), beta, alpha)
