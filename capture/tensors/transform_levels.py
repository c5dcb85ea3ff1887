"""Turns the levels of function transforms (`vmap`, `grad`, ...) off while the interpreter works inside of them.

At a level, PyTorch wraps each new tensor. Those that the capture makes for itself must stay plain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

Key = torch._C.DispatchKey
are_active = torch._C._are_functorch_transforms_active
levels_off = torch._C._DisableFuncTorch


@contextmanager
def levels_on() -> Iterator[None]:
    """Turns them on again, where ops are recorded."""
    if not are_active():
        yield
        return
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (Key.FuncTorchDynamicLayerFrontMode, Key.FuncTorchDynamicLayerBackMode):
        excluded = excluded.remove(key)
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield
