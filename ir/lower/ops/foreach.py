"""`torch._foreach_` ops: the plain op for every tensor of a list.

On the CPU eager calls the plain op for each tensor.  Its kernels for GPUs compute in float32 where the plain
ones do, and also round once.  Norms and other reductions stay library calls: one call for all tensors.
"""

from __future__ import annotations

from typing import Any

from frameloom.ir.library import overload
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.table import TABLE, Call, Decline, Ref, lowering, positions, read
from frameloom.ir.node import const, index, load
from frameloom.ir.program import is_cuda

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
    "sqrt", "tan", "tanh", "trunc", "clone",
)  # fmt: skip
# Overload of the list form -> the plain op.  A list argument has an item per tensor; any other argument is
# for all of them.
PLAIN = {
    **{f"{name}.default": f"{name}.default" for name in UNARY},
    **{
        f"{name}.{overload}": f"{name}.{plain}"
        for name in ("add", "sub", "mul", "div")
        for overload, plain in (
            ("Scalar", "Scalar"), ("ScalarList", "Scalar"), ("List", "Tensor"), ("Tensor", "Tensor"),
        )
        if (name, overload) != ("sub", "Tensor")
    },
    **{
        f"{name}.{overload}": plain
        for name, plain in (
            ("clamp_min", "clamp_min"), ("maximum", "clamp_min"),
            ("clamp_max", "clamp_max"), ("minimum", "clamp_max"),
        )
        for overload, plain in (
            ("Scalar", f"{plain}.default"), ("ScalarList", f"{plain}.default"), ("List", f"{plain}.Tensor"),
        )
    },
    "addcmul.Scalar": "addcmul.default", "addcmul.ScalarList": "addcmul.default",
    "addcdiv.Scalar": "addcdiv.default", "addcdiv.ScalarList": "addcdiv.default",
    "lerp.Scalar": "lerp.Scalar", "lerp.ScalarList": "lerp.Scalar", "lerp.List": "lerp.Tensor",
    "pow.Scalar": "pow.Tensor_Scalar", "pow.ScalarList": "pow.Tensor_Scalar",
    "pow.List": "pow.Tensor_Tensor", "pow.ScalarAndTensor": "pow.Scalar",
    "copy.default": "copy.default",
}  # fmt: skip
# The same with the namespace: the ops that count as one op for each item.
PLAIN_OF = {
    "aten._foreach_zero.default": "aten.clone.default",
    **{f"aten._foreach_{name}": f"aten.{plain}" for name, plain in PLAIN.items()},
}


def _each(call: Call, target: str, args: tuple[Any, ...]) -> list[Any]:
    """Returns the values of the plain op for every tensor of the lists."""
    names = tuple(a.name for a in overload(f"aten.{target}")._schema.arguments)
    function = TABLE[f"aten.{target}"]
    values = []
    for k, result in enumerate(call.results):
        given = [a[k] if isinstance(a, list) else a for a in args]
        # Arguments that only the plain op has keep their defaults; all arguments of the list op exist there.
        given += [1] * ("alpha" in names and len(given) < len(names))
        given += [None] * (len(names) - len(given))
        one = Call(f"aten.{target}", names, (result,), call.checks, device=call.device)
        values.append(None if 0 in result.shape else function(one, *given))
    return values


for _name, _target in PLAIN.items():

    def _lower(call: Call, *args: Any, target: str = _target) -> list[Any]:
        return _each(call, target, args)

    lowering(f"aten._foreach_{_name}", numbers=_name.partition(".")[0] != "pow")(_lower)


@lowering("aten._foreach_zero.default")
def zero(call: Call, tensors: list[Ref]) -> list[Any]:
    return [Expr(const(0, r.dtype)) for r in call.results]


@lowering("aten._foreach_addcmul.Tensor", "aten._foreach_addcdiv.Tensor")
def with_numbers(
    call: Call, tensors: list[Ref], first: list[Ref], second: list[Ref], numbers: Ref
) -> list[Any]:
    """Lowers the forms whose numbers are the elements of a tensor."""
    if numbers.dtype is None or any(not r.dtype.is_float for r in call.results):
        raise Decline
    if numbers.buffer.device != "cpu" or numbers.shape != (len(tensors),):
        raise Decline  # eager raises
    values: list[Any] = []
    for k, result in enumerate(call.results):
        at = positions(result.shape)
        if any(t.shape != result.shape for t in (tensors[k], first[k], second[k])):
            raise Decline
        x, a, b = (read(t, at).cast(result.dtype).wide() for t in (tensors[k], first[k], second[k]))
        where = index(numbers.offset + k * numbers.strides[0])
        number = Expr(load(numbers.buffer, where)).cast(x.dtype)
        if is_cuda(call.device):
            product = number * (a * b if "addcmul" in call.target else a / b)
        else:
            product = number * a * b if "addcmul" in call.target else number * a / b
        values.append(None if 0 in result.shape else x + product)
    return values
