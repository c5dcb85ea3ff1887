"""Opcodes that are left to CPython, each with the reason.

This table and the table of handlers together have every opcode of all supported versions
(tests/capture/test_opcodes.py).
"""

from __future__ import annotations

CLASS_BODY = (
    "the names of a class or module body are looked up in a dictionary; such code is never captured"
)
EXCEPTION_GROUP = "except* splits exception groups, which is left to CPython"
INTERNAL = "only the interpreter's own code objects have it"
INSTRUMENTED = "debuggers and profilers put it in; code objects show the original"

UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(
        (
            "DELETE_NAME", "IMPORT_STAR", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_LOCALS", "LOAD_NAME",
            "PRINT_EXPR", "SETUP_ANNOTATIONS", "STORE_NAME",
        ),
        CLASS_BODY,
    ),
    **dict.fromkeys(("CALL_INTRINSIC_2", "CHECK_EG_MATCH", "PREP_RERAISE_STAR"), EXCEPTION_GROUP),
    **dict.fromkeys(("ENTER_EXECUTOR", "EXIT_INIT_CHECK", "INTERPRETER_EXIT", "RESERVED"), INTERNAL),
}  # fmt: skip


def why(op: str) -> str | None:
    """Returns the reason, or None for an unknown opcode."""
    return INSTRUMENTED if op.startswith("INSTRUMENTED_") else UNSUPPORTED.get(op)
