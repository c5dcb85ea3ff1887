"""Facts about opcodes, per CPython version: operand kinds, cache units, jumps, stack results.

In: the running interpreter's `opcode` tables. Out: sets and small functions that the decoder, the assembler,
the liveness analysis and the break machinery share. What an opcode *does* is in `interpreter/opcodes/`;
nothing here runs code.
"""

from __future__ import annotations

import opcode
import operator
import sys
from collections.abc import Callable
from typing import Any

PY312 = sys.version_info >= (3, 12)
PY313 = sys.version_info >= (3, 13)
OPMAP: dict[str, int] = {name: op for name, op in opcode.opmap.items() if op < 256}
OPNAME: list[str] = opcode.opname
_caches: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
CACHES: dict[str, int] = {
    name: count
    for name, count in (
        _caches.items() if isinstance(_caches, dict) else zip(opcode.opname, _caches, strict=False)
    )
    if count
}
HAVE_ARGUMENT: int = opcode.HAVE_ARGUMENT


def _names(codes: list[int]) -> frozenset[str]:
    return frozenset(
        opcode.opname[c] for c in codes if c < 256 and not opcode.opname[c].startswith("<")
    )


JUMPS = _names(opcode.hasjrel)
NAMES = _names(opcode.hasname)
CONSTS = _names(opcode.hasconst)
PAIRS: dict[str, tuple[str, str]] = {  # two instructions in one, with four bits of operand each
    f"{first}_{second}": (first, second)
    for first, second in (
        ("LOAD_FAST", "LOAD_FAST"),
        ("STORE_FAST", "LOAD_FAST"),
        ("STORE_FAST", "STORE_FAST"),
    )
    if f"{first}_{second}" in OPMAP
}
SLOTS = (  # operand: index of localsplus
    _names(opcode.haslocal) | _names(opcode.hasfree)
) - PAIRS.keys()
LOAD_CELL = "LOAD_FAST" if PY313 else "LOAD_CLOSURE"  # pushes a cell itself, not its content

# The number of low bits of a name operand that are not part of the name's index.
FLAG_BITS: dict[str, int] = {"LOAD_GLOBAL": 1}
if PY312:
    FLAG_BITS |= {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}

UNCONDITIONAL_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
NO_FALLTHROUGH = UNCONDITIONAL_JUMPS | {
    "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE",
}  # fmt: skip

# Since 3.12 a loop ends with instructions that pop the iterator and, on 3.12, a value that FOR_ITER never
# pushed.
END_FOR_LENGTH = 2 if PY313 else 1

# Since 3.13 these take a bool itself, which TO_BOOL makes of any other value.
TAKES_BOOL = frozenset({"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"} if PY313 else ())

# If a Python function that one of these calls raises, CPython 3.13 looks for the handler of the instruction
# before it.
CALLS_PYTHON = frozenset(
    {"BINARY_SUBSCR", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "FOR_ITER", "LOAD_ATTR", "SEND"}
    if PY313
    else ()
)

# Opcodes that leave no new value on the stack; others leave at least one result on top.
LEAVES_NOTHING = frozenset(
    name
    for name in OPMAP
    if (name.startswith(("STORE_", "DELETE_", "POP_", "JUMP", "RERAISE", "RAISE"))
    and not name.endswith("_LOAD_FAST"))
    or name in (
        "LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE", "MAP_ADD", "DICT_MERGE", "DICT_UPDATE", "NOP",
        "RESUME", "SETUP_ANNOTATIONS", "COPY_FREE_VARS", "MAKE_CELL", "END_FOR", "PRECALL",
    )
)  # fmt: skip

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
BINARY_OPS = [OPERATORS[symbol] for _, symbol in opcode._nb_ops]  # type: ignore[attr-defined]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
COMPARE_OPS = [COMPARISONS[symbol] for symbol in opcode.cmp_op[:6]]

# The special methods of each operator function: (forward, reflected); in-place ones fall back on these.
SPECIAL_METHODS: dict[Callable[[Any, Any], Any], tuple[str, str]] = {
    OPERATORS[symbol]: (f"__{name}__", f"__r{name}__")
    for symbol, name in {
        "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
        "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
    }.items()
}  # fmt: skip
SPECIAL_METHODS |= {
    operator.lt: ("__lt__", "__gt__"), operator.le: ("__le__", "__ge__"), operator.eq: ("__eq__", "__eq__"),
    operator.ne: ("__ne__", "__ne__"), operator.gt: ("__gt__", "__lt__"), operator.ge: ("__ge__", "__le__"),
}  # fmt: skip
IN_PLACE: dict[Callable[[Any, Any], Any], tuple[str, Callable[[Any, Any], Any]]] = {
    OPERATORS[symbol + "="]: (f"__i{SPECIAL_METHODS[OPERATORS[symbol]][0][2:]}", OPERATORS[symbol])
    for symbol in ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")
}


def compare_index(arg: int) -> int:
    """Returns the index of the comparison in a COMPARE_OP operand."""
    return arg >> 5 if PY313 else arg >> 4 if PY312 else arg


def stack_effect(op: str, arg: int | None, jump: bool) -> int:
    """Returns the net effect on the stack. CPython 3.11 counts a call's pops at PRECALL; in fact CALL does
    them."""
    if not PY312 and op == "CALL":
        assert arg is not None
        return -(arg + 1)
    if op == "PRECALL":
        return 0
    code = OPMAP[op]
    return opcode.stack_effect(code, arg if code >= HAVE_ARGUMENT else None, jump=jump)


def results(op: str, arg: int | None, jump: bool) -> int:
    """Returns how many new values are on top of the stack after the instruction, at most (see
    `resume/resume_function.py`)."""
    if op in LEAVES_NOTHING:
        return 0
    if op == "FOR_ITER":
        return 0 if jump else 1
    if op == "UNPACK_SEQUENCE":
        return arg or 0
    if op == "UNPACK_EX":
        return ((arg or 0) & 255) + ((arg or 0) >> 8) + 1
    return max(1, stack_effect(op, arg, jump)) if op != "BEFORE_WITH" else 2
