"""Control flow on data, for programs to call: `frameloom.cond(pred, true_fn, false_fn, operands)`.

This is plain Python. A jitted function that calls it, or torch.cond and torch.while_loop, has the branches
in its graph if possible (library/torch_api/control.py), and interprets this code otherwise. Nothing else
is imported with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """Returns `true_fn(*operands)` if `pred` is true, else `false_fn(*operands)`; `pred` is a tensor of one
    element, or a bool."""
    if not isinstance(pred, (bool, int, float)):
        if not isinstance(pred, torch.Tensor):
            raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
        if pred.numel() != 1:
            raise RuntimeError(
                f"Expected pred to be bool or single-element tensor, but got {pred}."
            )
        if not callable(true_fn) or not callable(false_fn):
            raise RuntimeError("Expect both branches to be callable.")
        if not isinstance(operands, (tuple, list)) or not all(map(_of_tensors, operands)):
            raise RuntimeError(
                "Expect operands to be a tuple of possibly nested dict/list/tuple that only "
                f"consists of tensor leaves, but got {operands}."
            )
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)


def _of_tensors(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_of_tensors(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return all(_of_tensors(v) for v in value)
    return isinstance(value, torch.Tensor)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]
) -> Any:
    """Does what torch.while_loop does."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"carried_inputs must be a tuple or list but got {type(carried_inputs)}")
    loop_state = carried_inputs
    entered = False
    while cond_fn(*loop_state):
        entered = True
        result = body_fn(*loop_state)
        loop_state = result if isinstance(result, (tuple, list)) else (result,)
    return result if entered else tuple(map(_copied, loop_state))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value))
    return value.clone() if isinstance(value, torch.Tensor) else value
