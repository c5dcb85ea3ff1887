"""Looks up library calls by name: "aten.addmm.default" or "aten.mm.out" -> the function that Python calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from frameloom.errors import FrameloomError


@functools.cache
def callable_for(target: str) -> Callable[..., Any]:
    """Returns the overload of torch.ops that `target` names: namespace, op and overload, separated by
    dots."""
    import torch

    op: Any = torch.ops
    for part in target.split("."):
        op = getattr(op, part, None)
        if op is None:
            raise FrameloomError(f"PyTorch {torch.__version__} has no operator {target}")
    return op
