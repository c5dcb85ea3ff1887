"""Loads cubins as functions on a device: once per content and device, until the process ends."""

from __future__ import annotations

from frameloom.runtime import _runtime
from frameloom.runtime.build.triton_compiler import Cubin

_loaded: dict[tuple[Cubin, int], int] = {}


def load(cubin: Cubin, device: int) -> int:
    """Returns the handle for a LaunchCall."""
    handle = _loaded.get((cubin, device))
    if handle is None:
        handle = _runtime.load_cubin(
            cubin.data, cubin.symbol, cubin.shared, cubin.extra, cubin.threads, device
        )
        _loaded[cubin, device] = handle
    return handle
