"""Rules of shapes/registry.py for products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.iteration import broadcast, empty
from frameloom.capture.shapes.registry import FRESH, rule, sized_rule

aten = torch.ops.aten
RANKS = {  # of the factors
    aten.mm.default: (2, 2),
    aten.bmm.default: (3, 3),
    aten.mv.default: (2, 1),
    aten.dot.default: (1, 1),
}
FRESH |= {
    aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.mv.default,
}  # fmt: skip


@rule(*RANKS)
def _product(func: Any, a: Any, b: Any) -> Any:
    """Raises for different dtypes, which meta kernels do not check."""
    if a.dtype is not b.dtype:
        raise RuntimeError("factors of different dtypes")
    if (a.dim(), b.dim()) != RANKS[func]:
        return None
    *rows, inner = a.shape
    *batch, own = b.shape[: max(b.dim() - 1, 1)]
    if any(n != m for n, m in zip(rows, batch, strict=False)) or inner != own:
        return None
    return empty((*rows, *b.shape[len(batch) + 1 :]), a.dtype)


@rule(aten.addmm.default, aten.baddbmm.default)
def _added_product(func: Any, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if func is aten.addmm.default and x.dtype is not a.dtype:
        raise RuntimeError("factors of different dtypes")
    out = _product(aten.mm.default if func is aten.addmm.default else aten.bmm.default, a, b)
    if out is None or x.dtype != out.dtype or broadcast(x.shape, out.shape) != tuple(out.shape):
        return None
    return out


@sized_rule(aten._cdist_forward.default)
def _cdist(func: Any, a: Any, b: Any, *rest: Any) -> Any:
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    if lead is None or a.shape[-1] != b.shape[-1]:
        return None
    return empty([*lead, a.shape[-2], b.shape[-2]], a.dtype)
