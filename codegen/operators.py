"""The operators that C++ and Triton spell alike."""

from __future__ import annotations

from frameloom.ir.ops import Op

INFIX = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.AND: "&", Op.OR: "|", Op.XOR: "^", Op.SHL: "<<",
    Op.SHR: ">>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">=", Op.EQ: "==", Op.NE: "!=",
}  # fmt: skip
