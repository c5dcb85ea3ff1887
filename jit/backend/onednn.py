"""Decides which ops of oneDNN replace those that PyTorch calls: whether they exist, and whether they are
faster.

Products: PyTorch multiplies F32 matrices with MKL, which uses its fastest code only on Intel's processors.  A
test of a few milliseconds finds the faster of the two once per machine; the result is kept on disk.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from time import perf_counter  # by name: the program may replace the functions of `time`
from typing import Any

import torch

from frameloom.debug import log
from frameloom.ir.lower.layout.onednn import OneDnn
from frameloom.runtime.build.cache import digest, shared_cache

OPS = ("mkldnn::_linear_pointwise", "mkldnn::_convolution_pointwise")
SIZE = 256  # of the matrices
ROUNDS = 10
GAIN = 1.15  # oneDNN must be faster by this factor to be used


def onednn() -> OneDnn:
    """Returns which of its ops a compile that starts now uses."""
    if not torch._C._get_mkldnn_enabled() or not _is_there():
        return OneDnn()
    return OneDnn(products=_multiplies_faster(), convolutions=True)


@functools.cache
def _is_there() -> bool:
    names = set(torch._C._dispatch_get_all_op_names()) if torch._C._has_mkldnn else set()
    return all(name in names for name in OPS)


@functools.cache
def _multiplies_faster() -> bool:
    key = digest("onednn products", torch.__version__, _processor())
    cached = shared_cache().get(key, ".choice")
    if cached is None:
        cached = str(int(_measured())).encode()
        shared_cache().put(key, ".choice", cached)
    return cached == b"1"


def _measured() -> bool:
    with torch.inference_mode(), torch._C._DisableTorchDispatch():
        x, w = (torch.ones(SIZE, SIZE, dtype=torch.float32, device="cpu") for _ in range(2))
        linear = torch.ops.mkldnn._linear_pointwise
        calls: tuple[Callable[[], Any], ...] = (
            lambda: torch.mm(x, w.t()),
            lambda: linear(x, w, None, "none", [], ""),
        )
        taken = [float("inf")] * len(calls)
        for _ in range(ROUNDS):
            for k, call in enumerate(calls):
                start = perf_counter()
                call()
                taken[k] = min(taken[k], perf_counter() - start)
    mkl, ours = (f"{1e6 * t:.0f} us" for t in taken)
    log("timing", f"a product of {SIZE}x{SIZE} takes {mkl}, by oneDNN {ours}")
    return taken[0] > GAIN * taken[1]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            names = [
                line for line in info if line.startswith(("model name", "cpu family", "model\t"))
            ]
    except OSError:
        names = []
    return "".join(dict.fromkeys(names)) or platform.processor()
