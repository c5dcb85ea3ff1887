"""Numbers that a program computes from Python's ints and floats before its steps run, as Python would.

    NumberStep("mul", result, (lr, 0.5))      result = lr * 0.5

Every number is a Buffer of Kind.NUMBER and of I64 or F64: kernels get its 64 bits.  Operands are numbers of
one dtype, or constants of it.  `read` takes a CPU tensor that is an input and the offset of an element; it
reads the value from before any write.  `dim` and `stride` take an input tensor and the number of a dimension.
Ints are Python's as long as they fit into 64 bits.  If one does not, or if Python would raise or give a
number of another type, the program does not run at all, and the call bails out to Python.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.fx


def single(x: float) -> float:
    """Rounds a float to 32 bits."""
    return ctypes.c_float(x).value


def is_number(node: torch.fx.Node) -> bool:
    """Whether a node of a graph stands for a number."""
    return type(node.meta.get("val")) in (int, float)


# The same for floats and ints, unless a comment says otherwise.
MEANING: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": operator.pow, "neg": operator.neg, "abs": operator.abs, "min": min, "max": max,
    "float": float,  # of an int
    "narrow": lambda x: x,  # of a float that fits into 32 bits; PyTorch refuses others with such tensors
    "single": single,  # a float, rounded to 32 bits
    # of floats
    "int": int, "floor": math.floor, "ceil": math.ceil, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log2": math.log2,
    "log10": math.log10, "log1p": math.log1p, "expm1": math.expm1, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "tanh": math.tanh,
}  # fmt: skip
NAMES: dict[Any, str] = {fn: name for name, fn in MEANING.items()} | {
    pow: "pow", math.pow: "pow", abs: "abs", math.trunc: "int",
}  # fmt: skip
OF_FLOATS = frozenset([
    "truediv", "int", "floor", "ceil", "sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "tanh",
])  # fmt: skip
