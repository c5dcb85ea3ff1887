"""Programs that look at memory behind their tensors, where eager's results happen to lie in more than they need: a loss in that of what it is the mean of."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
STRIDED = frozenset({aten.as_strided.default, aten.as_strided_.default})


class Beyond(TorchDispatchMode):
    """`found`: whether a view reached further than every tensor that an op has made in that memory."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False
        self._ends: dict[int, tuple[weakref.ref[Any], int]] = {}  # by storage, in bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for t in pytree.tree_leaves(made):
            if not isinstance(t, torch.Tensor) or t.layout is not torch.strided or not t.numel():
                continue
            memory, end = t.untyped_storage(), _end(t)
            known, own = self._ends.get(memory._cdata, (None, 0))
            if known is None or known() is None:
                own = 0
            if func in STRIDED:
                self.found |= 0 < own < end
            elif not func.is_view:
                self._ends[memory._cdata] = weakref.ref(memory), max(own, end)
        return made


def _end(t: torch.Tensor) -> int:
    steps = zip(t.shape, t.stride(), strict=True)
    last = t.storage_offset() + sum((size - 1) * stride for size, stride in steps)
    return (last + 1) * t.element_size()
