"""NumPy's universal functions: which torch function computes each, in the dtypes of the loop that NumPy runs.

Division and remainder of ints by 0 are 0 in NumPy and raise in PyTorch, and powers of ints with negative
exponents raise in NumPy: they are captured for a constant operand. Complex arithmetic differs at infinities.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.interpreter.call_rules import FUNCTIONS as CALL_RULES
from frameloom.capture.interpreter.call_rules import Args, Kwargs
from frameloom.capture.library.numpy_api import complex_numbers
from frameloom.capture.library.numpy_api.calls import Function, captured, captures
from frameloom.capture.library.numpy_api.samples import dtype_of
from frameloom.capture.library.numpy_api.table import through
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_DTYPES, NUMPY_SCALARS
from frameloom.capture.values.function import BuiltinValue
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _sign(operand: torch.Tensor) -> torch.Tensor:
    sign = torch.sign(operand)
    return torch.where(operand != operand, operand, sign) if operand.is_floating_point() else sign


def _remainder(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Of floats, a remainder of zero has the sign of the divisor."""
    rest = torch.remainder(left, right)
    return (
        torch.where(rest == 0, torch.copysign(rest, right), rest)
        if rest.is_floating_point()
        else rest
    )


def _heaviside(operand: torch.Tensor, at_zero: torch.Tensor) -> torch.Tensor:
    step = torch.heaviside(operand, at_zero.expand_as(operand) if at_zero.ndim == 0 else at_zero)
    return torch.where(operand != operand, operand, step)


def _modf(operand: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.trunc(operand)
    rest = torch.where(torch.isinf(operand), torch.zeros_like(operand), operand - whole)
    return torch.copysign(rest, operand), whole


def _divmod(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.floor_divide(left, right), _remainder(left, right)


FUNCTIONS: dict[str, Any] = {
    "add": torch.add, "subtract": torch.subtract, "multiply": torch.multiply, "divide": torch.true_divide,
    "negative": torch.negative, "positive": torch.positive, "absolute": torch.absolute, "fabs": torch.absolute,
    "sign": _sign,
    "maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin,
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt, "square": torch.square,
    "reciprocal": torch.reciprocal, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "arcsin": torch.arcsin, "arccos": torch.arccos, "arctan": torch.arctan, "arctan2": torch.arctan2,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "arcsinh": torch.arcsinh,
    "arccosh": torch.arccosh, "arctanh": torch.arctanh, "hypot": torch.hypot, "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2, "copysign": torch.copysign, "deg2rad": torch.deg2rad,
    "radians": torch.deg2rad, "rad2deg": torch.rad2deg, "degrees": torch.rad2deg, "floor": torch.floor,
    "ceil": torch.ceil, "trunc": torch.trunc, "rint": torch.round, "isnan": torch.isnan, "isinf": torch.isinf,
    "isfinite": torch.isfinite, "signbit": torch.signbit, "less": torch.less, "less_equal": torch.less_equal,
    "greater": torch.greater, "greater_equal": torch.greater_equal, "equal": torch.eq, "not_equal": torch.not_equal,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "logical_not": torch.logical_not, "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor, "invert": torch.bitwise_not, "conjugate": torch.conj_physical,
    "matmul": torch.matmul, "heaviside": _heaviside, "modf": _modf, "nextafter": torch.nextafter, "gcd": torch.gcd,
}  # fmt: skip


DIVISIONS = {
    "floor_divide": torch.floor_divide, "remainder": _remainder, "divmod": _divmod, "fmod": torch.fmod, "power": torch.pow,
    "float_power": torch.pow, "left_shift": torch.bitwise_left_shift, "right_shift": torch.bitwise_right_shift,
}  # fmt: skip
DIVIDES = frozenset({"divide", "floor_divide", "remainder", "divmod", "fmod"})
FLOATS_ONLY = frozenset({"reciprocal"})
COMPLEX = frozenset({
    "absolute", "conjugate", "positive", "negative", "isnan", "isinf", "isfinite", "equal", "not_equal"
})  # fmt: skip


def _computed(ufunc: Any, fn: Any) -> Any:
    name = ufunc.__name__

    def compute(*operands: Any, **options: Any) -> torch.Tensor:
        if not options.keys() <= {"dtype", "casting"} or len(operands) != ufunc.nin:
            raise Break("numpy", f"{name}(...) with these arguments")
        dtype, casting = options.get("dtype"), options.get("casting", "same_kind")
        wanted: dict[str, Any] = (
            {}
            if dtype is None
            else {"signature": (*[None] * ufunc.nin, *[NUMPY.dtype(dtype)] * ufunc.nout)}
        )
        loop = ufunc.resolve_dtypes(
            (*map(_kind, operands), *[None] * ufunc.nout), casting=casting, **wanted
        )
        is_complex = loop[0].kind == "c"
        if is_complex and name not in COMPLEX and name not in complex_numbers.LOOPS:
            raise Break("numpy", f"{name}(...) of complex numbers")
        if loop[0].kind in "biu" and name in FLOATS_ONLY:
            raise Break("numpy", f"{name}(...) of ints")
        last = operands[-1]
        if name in DIVIDES and not isinstance(last, Fake) and not last:
            raise Break("warning", f"{name}(...) by zero")
        if name in DIVISIONS and not _suits(name, loop[0], last):
            raise Break("numpy", f"{name}(...) by these numbers")
        given = [cast(a, loops) for a, loops in zip(operands, loop, strict=False)]
        if name.endswith("power") and not isinstance(last, Fake):
            return torch.pow(given[0], loop[1].type(last).item())
        loop_of_numpy = complex_numbers.LOOPS.get(name) if is_complex else None
        return (loop_of_numpy or fn)(*given)  # type: ignore[no-any-return]

    compute.__name__ = name
    return compute


def _suits(name: str, dtype: Any, last: Any) -> bool:
    """Whether PyTorch divides by, raises to, or shifts by the last operand as NumPy does."""
    kind = dtype.kind
    if name.endswith("shift"):
        return not isinstance(last, Fake) and kind in "iu" and 0 <= int(last) < 8 * dtype.itemsize
    if isinstance(last, Fake):  # of one exponent for all, NumPy looks at the value
        return kind == "f" and not (name.endswith("power") and last.ndim == 0)
    if name.endswith("power") and last == 0.5:
        return False  # some of NumPy's loops compute a root, which is NaN for -inf
    return kind == "f" or (kind in "iu" and int(last) >= 0 and (name == "power" or int(last) > 0))


def _kind(operand: Any) -> Any:
    """Returns what NumPy chooses the loop by."""
    if isinstance(operand, Fake):
        return dtype_of(operand)
    if isinstance(operand, NUMPY_SCALARS):
        number: Any = operand
        return number.dtype
    if isinstance(operand, Size):
        return int
    return NUMPY.dtype(bool) if type(operand) is bool else type(operand)


def cast(operand: Any, dtype: Any) -> torch.Tensor:
    """Returns an operand as a tensor of one of NumPy's dtypes."""
    if isinstance(operand, list | tuple):
        return torch.stack([cast(item, dtype) for item in operand])
    wanted = getattr(torch, dtype.name)
    if isinstance(operand, Fake):
        return operand if operand.dtype is wanted else operand.to(wanted)
    if isinstance(operand, Size):
        return torch.scalar_tensor(operand, dtype=wanted)
    return torch.full((), dtype.type(operand).item(), dtype=wanted)


# --- methods of universal functions

REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"
}  # fmt: skip
SCANS = {"add": "cumsum", "multiply": "cumprod"}
# Of floats, NaN stays: in NumPy's ufuncs as in these.
RUNNING: dict[str, Any] = {"maximum": torch.cummax, "minimum": torch.cummin}


def _reduction(ufunc: Any) -> Any:
    if ufunc.__name__ not in REDUCTIONS:
        return None
    reduce = through(REDUCTIONS[ufunc.__name__])

    def compute(array: torch.Tensor, axis: Any = 0, dtype: Any = None, **how: Any) -> torch.Tensor:
        if not how.keys() <= {"keepdims"}:
            raise Break("numpy", f"{ufunc.__name__}.reduce(...) with these arguments")
        wanted = {} if dtype is None else {"dtype": NUMPY.dtype(dtype)}
        return reduce(array, axis=axis, **how, **wanted)  # type: ignore[no-any-return]

    return compute


def _scan(ufunc: Any) -> Any:
    name = ufunc.__name__
    if name not in SCANS and name not in RUNNING:
        return None

    def compute(array: torch.Tensor, axis: int = 0, dtype: Any = None) -> torch.Tensor:
        if name in RUNNING:
            given = array if dtype is None else cast(array, NUMPY.dtype(dtype))
            return RUNNING[name](given, axis).values  # type: ignore[no-any-return]
        wanted = {} if dtype is None else {"dtype": NUMPY.dtype(dtype)}
        return through(SCANS[name])(array, axis=axis, **wanted)  # type: ignore[no-any-return]

    return compute


def _outer(ufunc: Any) -> Any:
    fn = {**FUNCTIONS, **DIVISIONS}.get(ufunc.__name__)

    def compute(left: Any, right: Any) -> torch.Tensor:
        if not isinstance(left, Fake) or not isinstance(right, Fake):
            raise Break("numpy", f"{ufunc.__name__}.outer(...) of these arguments")
        wide = left.reshape(*left.shape, *[1] * right.ndim)
        return _computed(ufunc, fn)(wide, right)  # type: ignore[no-any-return]

    return compute if fn is not None and ufunc.nin == 2 else None


@functools.cache
def _method(ufunc: Any, name: str) -> Function:
    make = {"reduce": _reduction, "accumulate": _scan, "outer": _outer}[name]
    return Function(getattr(ufunc, name), make(ufunc))


def _rule_of_method(name: str) -> Any:
    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        ufunc = t.look(args[0])
        if not isinstance(ufunc, BuiltinValue):
            raise Break("numpy", f"ufunc.{name}(...)")
        return captured(t, _method(ufunc.real, name), args[1:], kwargs)

    return rule


if NUMPY_DTYPES:
    import numpy as NUMPY

    for _name in ("reduce", "accumulate", "outer"):
        CALL_RULES[getattr(NUMPY.ufunc, _name)] = _rule_of_method(_name)

    for _name, _fn in {**FUNCTIONS, **DIVISIONS}.items():
        _ufunc = getattr(NUMPY, _name)
        captures(_ufunc, _computed(_ufunc, _fn), takes_out=True)
