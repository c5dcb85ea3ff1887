"""Numbers that are off by their last places: how far rounding alone may lead a program."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz import support

# What in a script makes numbers coarser than they look.
COARSE = {
    "float16": torch.float16,
    ".half()": torch.float16,
    "bfloat16": torch.bfloat16,
    "'autocast'": torch.bfloat16,
}

# Of which eager's vectors are off from its single numbers by units of 1 times the first operand, however small the result is.
ROUGH = (torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default)
# Whose order hangs on how the operand lies: eager sums what is expanded in few lanes.
ORDERED = (torch.ops.aten.sum.default, torch.ops.aten.mean.default)
# That magnify what the mean of equal numbers is off by.
NORMS = (torch.ops.aten.native_layer_norm.default, torch.ops.aten.native_group_norm.default)
# Ops with one right answer for given operands, beside those that make views and that give no floats.
EXACT = frozenset(
    """abs add add_ amax amin arange bernoulli cat ceil clamp clamp_ clone constant_pad_nd copy copy_ detach_ diagonal_scatter
    div_ empty empty_like empty_strided eye fill fill_ flip floor full full_like gather index index_put index_put_ index_select
    masked_fill masked_fill_ max maximum min minimum mul mul_ neg neg_ new_empty new_empty_strided new_full new_ones new_zeros
    nan_to_num ones ones_like put relu repeat roll round scalar_tensor scatter select_scatter sign slice_scatter sort sub sub_
    topk tril triu trunc unfold_backward where zero_ zeros zeros_like _to_copy""".split()
)


@contextlib.contextmanager
def disturbed(amount: float, coarse: float = 0.0, of_ops: bool = False) -> Iterator[None]:
    """Floats are off as `support.Disturbance` says."""
    was = dataclasses.replace(support.disturbance)
    vars(support.disturbance).update(amount=amount, coarse=coarse, of_ops=of_ops)
    try:
        yield
    finally:
        vars(support.disturbance).update(vars(was))


def applied() -> contextlib.AbstractContextManager[Any]:
    """What a call of the program runs in."""
    return Noise() if support.disturbance.amount else contextlib.nullcontext()


class Noise(TorchDispatchMode):
    """What is drawn, or computed from ints, is off by its last places, too, but for numbers that are whole; and so is what eager does roughly.

    With `of_ops`, so is what every op gives that rounds.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ORDERED:
            args = args[0].contiguous(), *args[1:]
        if func in NORMS:
            args = args[0].clone(memory_format=torch.contiguous_format), *args[1:]
            _disturb(args[0])
        made = func(*args, **(kwargs or {}))
        if func in ROUGH:
            made.add_(args[0] * support.off(made.dtype))
            if func is torch.ops.aten.gelu.default:
                made.masked_fill_(args[0] == math.inf, math.inf)  # of which its vectors make NaN
            return made
        if (support.disturbance.of_ops and _rounds(func)) or _is_source(func, args, kwargs):
            for t in pytree.tree_leaves(made):
                _disturb(t)
        return made


def _rounds(func: Any) -> bool:
    name = func._schema.name.partition("::")[2]
    if name in ("add", "add_") and torch._C._current_graph_task_id() >= 0:
        return True  # a sum of gradients, of which a plan may add others first
    return name not in EXACT and not func.is_view


def _is_source(func: Any, args: Any, kwargs: Any) -> bool:
    given = [a for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
    return torch.Tag.nondeterministic_seeded in func.tags or (
        bool(given) and not any(t.is_floating_point() or t.is_complex() for t in given)
    )


def _disturb(t: Any) -> None:
    if not isinstance(t, torch.Tensor) or not t.is_floating_point() or _is_whole(t):
        return
    signs = torch.arange(t.numel(), dtype=torch.float64, device=t.device) * 7 % 3 - 1
    t.mul_(1 + support.off(t.dtype) * signs.reshape(t.shape))


def _is_whole(t: torch.Tensor) -> bool:
    """Whether it holds whole numbers, and none so large that its neighbours are, too."""
    return torch.equal(t, t.round()) and not bool((t.abs() * torch.finfo(t.dtype).eps >= 1).any())
