"""What the scripts import: tensors of all layouts and dtypes from a seed, and the objects that programs keep state in."""

from __future__ import annotations

import collections
import dataclasses
import os
from typing import Any

import torch

DEVICE = os.environ.get("FUZZ_DEVICE", "cpu")
LAYOUTS = ("plain", "transposed", "stepped", "expanded", "inner", "column", "overlapping")
ERRORS = (
    RuntimeError,
    IndexError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    KeyError,
)
Pair = collections.namedtuple("Pair", "a b")
# Leaves that require a gradient, made since the judge last emptied this.
leaves: list[torch.Tensor] = []


@dataclasses.dataclass
class Disturbance:
    """By how much floats are to be off: `amount` units of the last place, which is `coarse` or the dtype's own; `of_ops`: also what is computed."""

    amount: float = 0.0
    coarse: float = 0.0
    of_ops: bool = False


disturbance = Disturbance()


def settle() -> None:
    """Waits for the GPU; raises what an assertion there has to say, as everything that follows does."""
    if DEVICE != "cpu":
        torch.cuda.synchronize()


@dataclasses.dataclass
class Box:
    x: Any
    n: int = 1


def tensor(
    shape: list[int], dtype: str = "float32", seed: int = 0, layout: str = "plain", grad: str = ""
) -> torch.Tensor:
    """`grad`: "leaf", "made" (from a leaf) or "" (no gradient)."""
    numbers = torch.Generator().manual_seed(seed)
    of = getattr(torch, dtype)
    if layout == "overlapping" and DEVICE == "cuda":
        layout = "stepped"  # of several threads that write to one place, any may be the last
    made = _numbers(_outer(shape, layout), of, numbers)
    made = _inner(made.to(DEVICE), shape, layout)
    if not grad or not (of.is_floating_point or of.is_complex):
        return made
    if layout != "plain":
        made = made.detach()
    leaves.append(made.requires_grad_())
    return made * 1 if grad == "made" else made


def _numbers(shape: list[int], of: torch.dtype, numbers: torch.Generator) -> torch.Tensor:
    made = torch.randint(-5, 9, shape, generator=numbers, device="cpu")
    if of is torch.bool:
        return made > 1
    if of is torch.uint8:
        return made.abs().to(of)
    if not (of.is_floating_point or of.is_complex):
        return made.to(of)
    noise = torch.rand(shape, generator=numbers, dtype=torch.float64, device="cpu")
    made = made / 4 + noise
    made = made * (1 + off(of) * (noise * 16 % 2 - 1))
    return made.to(of) * (1 - 0.5j) if of.is_complex else made.to(of)


def off(of: torch.dtype) -> float:
    return disturbance.amount * max(torch.finfo(of).eps, disturbance.coarse)


def near(made: torch.Tensor) -> torch.Tensor:
    """The numbers of a program itself: off as those of its arguments."""
    numbers = torch.Generator().manual_seed(0)
    noise = torch.rand(made.shape, generator=numbers, device="cpu").to(made.device)
    return made * (1 + off(made.dtype) * (noise.double() * 2 - 1)).to(made.dtype)


def _outer(shape: list[int], layout: str) -> list[int]:
    """The shape of the memory behind it."""
    if not shape:
        return [3]
    if layout == "transposed":
        return shape[::-1]
    if layout == "stepped":
        return [2 * n for n in shape]
    if layout == "expanded":
        return [1, *shape[1:]]
    if layout == "inner":
        return [*shape[:-1], shape[-1] + 2]
    if layout == "column":
        return [*shape, 2]
    return [sum(shape)] if layout == "overlapping" else shape


def _inner(made: torch.Tensor, shape: list[int], layout: str) -> torch.Tensor:
    if not shape:
        return made[1] if layout != "plain" else made[1].clone()
    if layout == "transposed":
        return made.permute(*range(len(shape))[::-1])
    if layout == "stepped":
        return made[(slice(None, None, 2),) * len(shape)]
    if layout == "expanded":
        return made.expand(shape)
    if layout == "inner":
        return made[..., 1:-1]
    if layout == "column":
        return made[..., 1]
    if layout == "overlapping":
        return made.as_strided(shape, [1] * len(shape)) if 0 not in shape else made.new_zeros(shape)
    return made
