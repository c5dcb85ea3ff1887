"""Finds functions that compute with NumPy alone and draw random numbers: their code uses nothing else."""

from __future__ import annotations

from types import CodeType

from frameloom.capture.bytecode.instruction import decode, names_in, per_code

# Instructions that use only the frame, its results, and the names of `chains_in`.
HARMLESS = (
    "BINARY_", "BUILD_", "CACHE", "CALL", "COMPARE_OP", "CONTAINS_OP", "COPY", "DELETE_FAST", "DELETE_SUBSCR", "DICT_", "END_FOR",
    "FOR_ITER", "FORMAT_", "CONVERT_VALUE", "GET_ITER", "GET_LEN", "IS_OP", "JUMP_", "KW_NAMES", "LIST_", "LOAD_ASSERTION_ERROR", "LOAD_ATTR",
    "LOAD_CLOSURE", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_METHOD", "MAKE_CELL", "MAKE_FUNCTION", "MAP_ADD", "NOP",
    "POP_JUMP", "POP_TOP", "PRECALL", "PUSH_NULL", "RAISE_VARARGS", "RERAISE", "RESUME", "RETURN_CONST", "RETURN_VALUE", "SET_", "STORE_DEREF",
    "STORE_FAST", "STORE_SLICE", "STORE_SUBSCR", "SWAP", "TO_BOOL", "UNARY_", "UNPACK_",
)  # fmt: skip
BUILTINS = frozenset({
    "abs", "all", "any", "bool", "divmod", "enumerate", "filter", "float", "int", "len", "list", "map", "max", "min", "range", "reversed", "round",
    "set", "slice", "sorted", "sum", "tuple", "zip", "ArithmeticError", "AssertionError", "IndexError", "RuntimeError", "TypeError", "ValueError",
})  # fmt: skip
ARRAYS = frozenset({
    "abs", "all", "any", "arange", "argmax", "argmin", "argsort", "array", "asarray", "bool_", "broadcast_to", "ceil", "clip", "concatenate", "cumsum",
    "diff", "empty", "expand_dims", "eye", "flip", "float32", "float64", "floor", "full", "full_like", "hstack", "int32", "int64", "isin", "linspace",
    "logical_and", "logical_not", "logical_or", "max", "maximum", "mean", "min", "minimum", "newaxis", "nonzero", "ones", "ones_like", "outer", "pad",
    "prod", "put_along_axis", "ravel", "repeat", "reshape", "round", "searchsorted", "sort", "split", "squeeze", "stack", "sum", "take",
    "take_along_axis", "tile", "transpose", "unique", "vstack", "where", "zeros", "zeros_like",
})  # fmt: skip
DRAWS = frozenset({
    "beta", "binomial", "choice", "exponential", "gamma", "geometric", "normal", "permutation", "poisson", "rand", "randint", "randn", "random",
    "random_sample", "shuffle", "standard_normal", "uniform",
})  # fmt: skip
# Methods of arrays that write files, and attributes that lead to other objects.
OUTWARD = ("_", "tofile", "dump", "ctypes", "data", "base", "format_map", "setflags")


@per_code
def chains_in(code: CodeType) -> tuple[tuple[str, ...], ...] | None:
    """Returns the global names and attributes that a function reads if it computes with NumPy alone and
    draws; None for any other function."""
    if "random" not in names_in(code) or code.co_freevars:
        return None
    chains: dict[tuple[str, ...], None] = {}
    if not _collect(code, chains) or not any(len(chain) == 3 for chain in chains):
        return None
    return tuple(chains)


def _collect(code: CodeType, chains: dict[tuple[str, ...], None]) -> bool:
    """Adds the chains of `code` and of the functions it makes; returns False if the code does anything
    else."""
    instrs, is_generator = decode(code), bool(code.co_flags & 0x20)
    for at, instr in enumerate(instrs):
        if is_generator and instr.op in ("RETURN_GENERATOR", "YIELD_VALUE", "CALL_INTRINSIC_1"):
            continue
        if not instr.op.startswith(HARMLESS):
            return False
        if instr.op == "LOAD_GLOBAL":
            chain: tuple[str, ...] = (str(instr.arg),)
            if chain[0] not in BUILTINS:  # a module; one attribute of it is read
                rest = [i for i in instrs[at + 1 : at + 3] if i.op in ("LOAD_ATTR", "LOAD_METHOD")]
                names = [str(i.arg) for i in rest]
                if not names or instrs[at + 1] is not rest[0]:
                    return False
                if names[0] == "random":
                    if len(names) < 2 or names[1] not in DRAWS:
                        return False
                    chain = (chain[0], *names)
                elif names[0] in ARRAYS:
                    chain = (chain[0], names[0])
                else:
                    return False
            chains[chain] = None
        elif instr.op in ("LOAD_ATTR", "LOAD_METHOD") and str(instr.arg).startswith(OUTWARD):
            return False
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return all(_collect(c, chains) for c in inner)
