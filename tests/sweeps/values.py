"""Tensors of special values, and the comparison of what is computed of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTS, torch.bool)


def special(dtype: torch.dtype) -> torch.Tensor:
    """Zeros, infinities, NaN, ends of ranges and what lies next to them, in one dimension."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        sizes = (
            0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 3.0, 10.0, 20.0, 88.0, 104.0, 127.0, 256.0, math.pi, 1e-3, 1e5,
            2.0**31, 2.0**63, 2.0**64, 1e155, math.inf, info.eps, info.tiny, info.tiny / 2, info.max,
        )  # fmt: skip
        both = [sign * size for size in sizes for sign in (1.0, -1.0)]
        return torch.tensor([*both, math.nan], dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    near = [0, 1, 2, 3, 5, 7, 8, 10, 31, 32, 33, 63, 64, 100, 127, info.max, info.max - 1]
    below = [-n for n in near[1:-2]] + [info.min, info.min + 1] if info.min else []
    return torch.tensor(near + below, dtype=dtype)


def matrices(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """With ties, rows of one value, infinities, NaN, one element, none."""
    values = special(dtype)
    if dtype.is_floating_point:
        values = values[values.isfinite() & (values.abs() < 300)][:30]
        plain = values.reshape(5, 6)
        yield plain.clone()
        spoilt = plain.clone()
        spoilt[0, 0], spoilt[1, 2], spoilt[2, 1], spoilt[4, 3], spoilt[4, 1] = (
            torch.tensor([math.nan, math.inf, -math.inf, math.nan, math.inf], dtype=dtype)
        )  # fmt: skip
        spoilt[3] = -math.inf
        yield spoilt
        yield torch.full((3, 4), -math.inf, dtype=dtype)
    else:
        yield values.repeat(10)[:20].reshape(4, 5)
    yield (torch.arange(24) % 5).reshape(4, 6).to(dtype)
    yield torch.zeros(3, 4, dtype=dtype)
    for shape in ((1, 1), (0, 3), (3, 0), (0, 0)):
        yield torch.ones(shape, dtype=dtype)


def difference(given: torch.Tensor, wanted: torch.Tensor, steps: float, scaled: bool) -> str | None:
    """None where all is equal, bit by bit for ints, and to so many units in the last place for floats: of each number, or of the largest (`scaled`)."""
    if (given.dtype, given.shape) != (wanted.dtype, wanted.shape):
        return f"{given.dtype} {list(given.shape)} for {wanted.dtype} {list(wanted.shape)}"
    if not given.dtype.is_floating_point:
        good = given == wanted
    else:
        a, b, info = given.double(), wanted.double(), torch.finfo(given.dtype)
        size = b.abs()
        if scaled:
            finite = size[size.isfinite()]
            size = torch.full_like(b, finite.max().item() if finite.numel() else 0.0)
        near = (a - b).abs() <= steps * info.eps * size.clamp(min=info.tiny)
        good = (a.isnan() & b.isnan()) | (a == b) & (scaled | (a.signbit() == b.signbit()))
        good |= near & a.isfinite() & b.isfinite() & ((a != 0) | (b != 0))
    if good.all():
        return None
    at = (~good).flatten().nonzero()[:3, 0].tolist()
    pairs = [(i, given.flatten()[i].item(), wanted.flatten()[i].item()) for i in at]
    return f"{int((~good).sum())} of {good.numel()}; (place, jitted, eager): {pairs}"
