"""Compares tensors that should be equal except for rounding.

Ints and bools are near if they are equal.  Floats are near if they differ by a few units in the last place of
a number as large as the wanted one plus the average of the tensor; infinities and NaN must be in the same
places.  Any two numbers below the smallest normal number are near: whether a kernel of PyTorch keeps them or
makes them 0 depends on its formula (`sigmoid(-95)` is 0 on a CPU).  This does not hold for dtypes where such
numbers are in use, as in float16.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
UNITS = 64  # units in the last place
UNITS_OF_HALVES = 4
NOTHING = 1e-30  # the smallest normal number of float16 and of narrower dtypes is larger


def other_kind(got: Any, want: Any) -> str | None:
    """Returns what differs apart from the values of tensors; None if nothing does."""
    if not isinstance(got, Tensor) or not isinstance(want, Tensor):
        return (
            None if type(got) is type(want) else f"{type(got).__name__} for {type(want).__name__}"
        )
    if got.dtype is not want.dtype or got.shape != want.shape:
        return f"{_kind(got)} for {_kind(want)}"
    # The stride of a dimension of size 1 does not matter.
    pairs = zip(got.shape, got.stride(), want.stride(), strict=True)
    if 0 not in got.shape and any(n != 1 and a != b for n, a, b in pairs):
        return f"strides {got.stride()} for {want.stride()}"
    return None


def _kind(t: Tensor) -> str:
    return f"{str(t.dtype)[6:]}{list(t.shape)}"


def distance(got: Tensor, want: Tensor) -> Tensor:
    """Returns the differences of elements; infinite if one is NaN or infinite and the other is not the
    same."""
    got, want = _numbers(got), _numbers(want)
    same = (got == want) | (got.isnan() & want.isnan())
    apart = (got.double() - want.double()).abs()
    apart = apart.nan_to_num(float("inf"), float("inf")).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.where(same, 0.0, apart)


def near(got: Tensor, want: Tensor) -> Tensor:
    """Returns for each element whether it is near."""
    apart = distance(got, want)
    if not (want.dtype.is_floating_point or want.dtype.is_complex):
        return apart == 0
    size = _numbers(want).double().abs().nan_to_num(0.0, 0.0)
    real = want.dtype.to_real()
    units = UNITS if real.itemsize > 2 else UNITS_OF_HALVES
    tiny = torch.finfo(real).tiny
    least = tiny if tiny < NOTHING else 0.0
    return apart <= units * torch.finfo(real).eps * (size + size.mean()) + least


def _numbers(t: Tensor) -> Tensor:
    if t.is_complex():
        return torch.view_as_real(t.resolve_conj().resolve_neg())
    small = t.dtype.is_floating_point and t.dtype.itemsize == 1  # dtypes without arithmetic
    return t.float() if small else t.resolve_neg()
