"""How far apart tensors are that should be equal but for rounding.

Ints and bools are near if they are equal, floats if they are a few units in the last place apart, of numbers as large as they are plus what the
tensor's are on average; infinities and NaN are in the same places.  Below the smallest normal number, any two are near: whether a kernel of
PyTorch keeps those or makes them 0 depends on its formula (`sigmoid(-95)` is 0 on a CPU); not where such numbers are in use, as in float16.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
UNITS = 64  # in the last place
UNITS_OF_HALVES = 4
NOTHING = 1e-30  # the smallest normal number of float16, and of narrower ones, is more


def other_kind(got: Any, want: Any) -> str | None:
    """What differs beside the values of tensors; None where only these may."""
    if not isinstance(got, Tensor) or not isinstance(want, Tensor):
        return (
            None if type(got) is type(want) else f"{type(got).__name__} for {type(want).__name__}"
        )
    if got.dtype is not want.dtype or got.shape != want.shape:
        return f"{_kind(got)} for {_kind(want)}"
    # Of dimensions of one element the stride is anything.
    pairs = zip(got.shape, got.stride(), want.stride(), strict=True)
    if 0 not in got.shape and any(n != 1 and a != b for n, a, b in pairs):
        return f"strides {got.stride()} for {want.stride()}"
    return None


def _kind(t: Tensor) -> str:
    return f"{str(t.dtype)[6:]}{list(t.shape)}"


def distance(got: Tensor, want: Tensor) -> Tensor:
    """Element by element; infinite where one is not a number or not finite, and the other not the same."""
    got, want = _numbers(got), _numbers(want)
    same = (got == want) | (got.isnan() & want.isnan())
    apart = (got.double() - want.double()).abs()
    apart = apart.nan_to_num(float("inf"), float("inf")).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.where(same, 0.0, apart)


def near(got: Tensor, want: Tensor) -> Tensor:
    """Element by element."""
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
    small = t.dtype.is_floating_point and t.dtype.itemsize == 1  # that have no arithmetic
    return t.float() if small else t.resolve_neg()
