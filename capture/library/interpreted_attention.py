"""PyTorch's `flex_attention` as code to interpret (`torch_api/flex_attention.py` says when).

The program's functions of a score and of indices are mapped over four dimensions: batch, head, query, key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch


def over_places(function: Callable[..., Any], of_scores: bool) -> Callable[..., Any]:
    """Returns the function for tensors of indices, one tensor per dimension; `of_scores`: its first argument is
    a score."""

    def mapped(*args: Any) -> Any:  # `vmap` copies the attributes of what it maps
        return function(*args)

    scores: tuple[Any, ...] = (0,) if of_scores else ()
    for place in (3, 2, 1, 0):
        dims = tuple(0 if k == place else None for k in range(4))
        mapped = torch.vmap(mapped, in_dims=(*scores, *dims))
    return mapped


def places(sizes: Any, device: Any) -> list[torch.Tensor]:
    return [torch.arange(0, size, device=device) for size in sizes]


def create_mask(
    kind_of: Callable[..., Any],
    mod_fn: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> torch.Tensor:
    """Does `create_mask`; `kind_of` is PyTorch's function that tells masks from scores."""
    if device is None:
        device = torch.accelerator.current_accelerator() or "cpu"
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    where = places(sizes, device)
    if kind_of(mod_fn).name != "SCORE_MOD":
        return over_places(mod_fn, False)(*where)  # type: ignore[no-any-return]
    scores = over_places(mod_fn, True)(torch.zeros(sizes, device=device), *where)
    return torch.where(torch.isneginf(scores), False, True)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., Any],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the attention, and per query the logarithm to base 2 of the sum of all weights, and of the
    largest. The blocks of the mask only say which of its elements need no look."""
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    group = query.size(1) // key.size(1)
    if group != 1:
        key, value = (torch.repeat_interleave(x, group, dim=1) for x in (key, value))
    if query.size(0) != key.size(0):
        key, value = (x.expand(query.size(0), *x.size()[1:]) for x in (key, value))
    scores = query.to(precision) @ key.to(precision).transpose(-2, -1)
    scores = (scores * scale).to(precision)
    where = places(scores.size(), scores.device)
    lowest = torch.full((), -math.inf, dtype=precision, device=scores.device)
    allowed = over_places(block_mask[-1], False)(*where)
    needs_no_gradient(allowed)
    scores = torch.where(allowed, over_places(score_mod, True)(scores, *where), lowest)
    is_empty = torch.all(scores == -math.inf, dim=-1)
    # An empty row has no gradient.
    sums = torch.where(is_empty[..., None], 0.0, scores).logsumexp(dim=-1)
    sums = torch.where(is_empty, -math.inf, sums)
    largest = torch.amax(scores.detach(), dim=-1)
    weights = torch._safe_softmax(scores, dim=-1)
    result = weights.to(query.dtype) @ value.to(query.dtype)
    return (
        with_order_of(query.stride(), result),
        sums / math.log(2),
        largest / math.log(2),
    )


def needs_no_gradient(mask: torch.Tensor) -> None:
    """Breaks the graph if the mask is computed from a tensor that needs a gradient: eager refuses that."""


def with_order_of(strides: tuple[int, ...], result: torch.Tensor) -> torch.Tensor:
    """Returns the result with its dimensions in the order of these strides, the last one innermost."""
    sizes, last = result.size(), len(strides) - 1
    step, made = 1, [0] * len(strides)
    others = sorted(range(last), key=lambda dim: (strides[dim], -dim))
    for dim in (last, *others):
        made[dim] = step
        step *= sizes[dim]
    return result.new_empty_strided(sizes, made).copy_(result)
