"""Functions of one element, or of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Table = dict[str, Callable[..., Any]]

ONE: Table = {
    name: getattr(torch, name)
    for name in (
        "abs neg sign sgn floor ceil round trunc frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin "
        "acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma isnan isinf isfinite isposinf isneginf signbit "
        "logical_not bitwise_not sinc logit nan_to_num deg2rad rad2deg positive relu angle i0 selu celu"
    ).split()
} | {
    name: getattr(F, name)
    for name in (
        "relu6 elu silu mish softplus hardtanh hardswish hardsigmoid leaky_relu logsigmoid softsign tanhshrink softshrink hardshrink gelu"
    ).split()
} | {
    f"special_{name}": getattr(torch.special, name)
    for name in "entr erfcx i0e i1 i1e log_ndtr ndtr ndtri bessel_j0 bessel_j1".split()
}  # fmt: skip


def _with_numbers() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool):  # fmt: skip
        ONE[f"to {dtype}"] = lambda x, d=dtype: x.to(d)
    for n in (0, 1, -1, 2, 3, -2, 0.5, -0.5):
        ONE[f"x ** {n}"], ONE[f"{n} ** x"] = lambda x, n=n: x**n, lambda x, n=n: n**x
    for n in (2, -2, 3, 0.3, -0.7, 0):
        ONE[f"x // {n}"], ONE[f"{n} // x"] = lambda x, n=n: x // n, lambda x, n=n: n // x
        ONE[f"x % {n}"], ONE[f"{n} % x"] = lambda x, n=n: x % n, lambda x, n=n: n % x
        ONE[f"x / {n}"], ONE[f"{n} / x"] = lambda x, n=n: x / n, lambda x, n=n: n / x
        ONE[f"x * {n}"], ONE[f"{n} - x"] = lambda x, n=n: x * n, lambda x, n=n: n - x
        ONE[f"clamp {n}"], ONE[f"x > {n}"] = lambda x, n=n: x.clamp(min=n), lambda x, n=n: x > n
    for n in (0, 1, 7, 31, 33, 64):
        ONE[f"x << {n}"], ONE[f"x >> {n}"] = lambda x, n=n: x << n, lambda x, n=n: x >> n
    for n in (1, 2, -1):
        ONE[f"round to {n}"] = lambda x, n=n: torch.round(x, decimals=n)


_with_numbers()

TWO: Table = {
    name: getattr(torch, name)
    for name in (
        "add sub mul div floor_divide remainder fmod pow atan2 maximum minimum fmax fmin hypot copysign nextafter ldexp logaddexp logaddexp2 "
        "eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd "
        "lcm xlogy heaviside float_power"
    ).split()
} | {
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "where": lambda a, b: torch.where(a > b, a, b),
    "clamp to tensors": lambda a, b: torch.clamp(a, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=2),
}  # fmt: skip

# Eager ends the process there: the smallest integer divided by -1.
TRAPS = ("div trunc", "lcm", "gcd", "pow", "float_power")

# What eager's vectorized kernels give only where an element falls into a whole vector, or an approximation of theirs that ours is nearer than:
# remainders of huge quotients are NaN, gelu of infinity is NaN, tiny sigmoids and erfs are 0, a maximum of 0 and -0 is either, zeros have another sign,
# a product is not rounded before it is added.
EAGERS_OWN = {
    "remainder", "fmod", "gelu", "erf", "sigmoid", "maximum", "minimum", "fmax", "fmin", "clamp to tensors", "lerp", "sinh", "cosh",
    "logaddexp2", "selu", "softshrink", "logsigmoid", "addcmul",
    *(name for name in ONE if " % " in name), *(name for name in ONE if name.startswith("special_")),
}  # fmt: skip
# The same of GPUs: a product that is not rounded before it is added.
EAGERS_OWN_ON_GPU = {"addcdiv"}
