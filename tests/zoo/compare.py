"""Whether two results of a model agree: structure, types, dtypes, shapes, strides, values.

Floating point values may differ by the reassociation of sums: what counts is the difference relative to the largest value of the tensor.
Outputs of transformers (ModelOutput, caches) are walked as dictionaries and objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

TOLERANCE = 1e-4  # of the largest absolute value of a tensor


class Disagreement(Exception):
    """Says what differs."""


def compare(got: Any, want: Any) -> float:
    """The largest relative difference of any tensor; raises Disagreement."""
    worst = 0.0
    got_parts, want_parts = list(parts(got)), list(parts(want))
    names = [name for name, _ in want_parts]
    if [name for name, _ in got_parts] != names:
        raise Disagreement(f"parts {[n for n, _ in got_parts]} instead of {names}"[:400])
    for (name, g), (_, w) in zip(got_parts, want_parts, strict=True):
        if type(g) is not type(w):
            raise Disagreement(f"{name}: {type(g).__name__} instead of {type(w).__name__}")
        if isinstance(w, torch.Tensor):
            worst = max(worst, compare_tensors(name, g, w))
        elif isinstance(w, int | float | str | bool | torch.dtype) and g != w and w == w:
            raise Disagreement(f"{name}: {g!r} instead of {w!r}")
    return worst


def compare_tensors(name: str, got: torch.Tensor, want: torch.Tensor) -> float:
    for what in ("dtype", "shape", "requires_grad", "device"):
        if getattr(got, what) != getattr(want, what):
            raise Disagreement(
                f"{name}: {what} {getattr(got, what)} instead of {getattr(want, what)}"
            )
    if got.stride() != want.stride():
        raise Disagreement(
            f"{name}: strides {got.stride()} instead of {want.stride()} of {tuple(want.shape)}"
        )
    if want.numel() == 0:
        return 0.0
    if not (want.is_floating_point() or want.is_complex()):
        if not torch.equal(got, want):
            raise Disagreement(
                f"{name}: {int((got != want).sum())} of {want.numel()} integers differ"
            )
        return 0.0
    got, want = (
        got.detach().double() if not got.is_complex() else got,
        want.detach().double() if not want.is_complex() else want,
    )
    finite = want.isfinite()
    if not torch.equal(got.isfinite(), finite) or not torch.equal(
        got[~finite].nan_to_num(), want[~finite].nan_to_num()
    ):
        raise Disagreement(f"{name}: infinite or NaN elsewhere")
    if not finite.any():
        return 0.0
    difference = (got - want)[finite].abs().max().item() / max(
        want[finite].abs().max().item(), 1e-6
    )
    if difference > TOLERANCE:
        raise Disagreement(f"{name}: differs by {difference:.2g} of the largest value")
    return difference


def parts(
    value: Any, name: str = "result", above: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Every leaf with the path to it, and every container with its type."""
    if id(value) in above:
        return
    above = (*above, id(value))
    if isinstance(value, torch.Tensor | int | float | str | type(None) | torch.dtype | type):
        yield name, value
    elif isinstance(value, Mapping):
        yield name, type(value).__name__
        for key, item in value.items():
            yield from parts(item, f"{name}[{key!r}]", above)
    elif isinstance(value, list | tuple | set):
        yield name, type(value).__name__
        for i, item in enumerate(value):
            yield from parts(item, f"{name}[{i}]", above)
    elif dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        yield name, type(value).__name__
        for key, item in vars(value).items():
            yield from parts(item, f"{name}.{key}", above)


def copied(value: Any) -> Any:
    """Inputs with tensors cloned."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value
