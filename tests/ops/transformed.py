"""Forms in which an op's function is not called as it is: under vmap, and as the function of NumPy on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree


def under_vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a program that maps the function over the first dimension of all tensors of `stacked` arguments."""

    def one(input: Any, args: Any, kwargs: Any) -> Any:
        return function(input, *args, **kwargs)

    def call(input: Any, args: Any, kwargs: Any) -> Any:
        given = (input, args, kwargs)
        dims = pytree.tree_map(lambda leaf: 0 if isinstance(leaf, torch.Tensor) else None, given)
        return torch.func.vmap(one, in_dims=dims, randomness="different")(*given)

    return call


def stacked(arguments: Any) -> Any | None:
    """Returns arguments with two tensors stacked in place of each: itself, and one of the same kind that is as
    good an argument for most ops, also where it must be positive or in a range. None if there are none."""
    tensors = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)]
    if not tensors or any(t.layout is not torch.strided for t in tensors):
        return None
    return pytree.tree_map(_with_another, arguments)


def _with_another(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    inexact = leaf.is_floating_point() or leaf.is_complex()
    return torch.stack([leaf, leaf * 0.5 if inexact else leaf.flip(0) if leaf.ndim else leaf])


def numpy_function(op: Any) -> Any:
    """Returns the function of NumPy that an op is compared with in PyTorch's own tests, or that of its name."""
    if op.ref is not None:
        return op.ref
    if op.name.startswith("empty"):
        return None  # NumPy gives out its own memory again, as it was left
    found = getattr(np, op.name, None)
    return found if callable(found) and not isinstance(found, type) else None


def as_arrays(arguments: Any) -> Any | None:
    """Returns arguments with arrays in place of tensors; None if NumPy has none of that dtype."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return getattr(np, str(leaf)[6:].replace("bool", "bool_"))
        return leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf

    try:
        return pytree.tree_map(convert, arguments)
    except (TypeError, RuntimeError, AttributeError):
        return None
