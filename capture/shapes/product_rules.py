"""Rules of shapes/registry.py for products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.iteration import broadcast, empty
from frameloom.capture.shapes.registry import FRESH, rule, sized_rule

aten = torch.ops.aten
MM, BMM, ADDMM, BADDBMM = (
    aten.mm.default,
    aten.bmm.default,
    aten.addmm.default,
    aten.baddbmm.default,
)
RANKS = {  # of the factors
    MM: (2, 2),
    BMM: (3, 3),
    aten.mv.default: (2, 1),
    aten.dot.default: (1, 1),
}
FRESH |= {MM, BMM, ADDMM, BADDBMM, aten.mv.default}


@rule(*RANKS)
def _product(func: Any, a: Any, b: Any) -> Any:
    """Raises for different dtypes, which meta kernels do not check."""
    if a.dtype is not b.dtype:
        raise RuntimeError("factors of different dtypes")
    left, right = a.shape, b.shape
    if (len(left), len(right)) != RANKS[func]:
        return None
    k = len(left) - 2 if len(left) > 2 else 0  # dimensions of the batch
    if left[:k] != right[:k] or left[-1] != right[k]:
        return None
    return empty((*left[:-1], *right[k + 1 :]), a.dtype)


@rule(ADDMM, BADDBMM)
def _added_product(func: Any, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if func is ADDMM and x.dtype is not a.dtype:
        raise RuntimeError("factors of different dtypes")
    out = _product(MM if func is ADDMM else BMM, a, b)
    if out is None or x.dtype != out.dtype or broadcast(x.shape, out.shape) != tuple(out.shape):
        return None
    return out


@sized_rule(aten._cdist_forward.default)
def _cdist(func: Any, a: Any, b: Any, *rest: Any) -> Any:
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    if lead is None or a.shape[-1] != b.shape[-1]:
        return None
    return empty([*lead, a.shape[-2], b.shape[-2]], a.dtype)
