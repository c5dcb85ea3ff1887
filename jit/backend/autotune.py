"""mode="max-autotune": times several launch configurations of each GPU kernel and uses the fastest.

The result is kept on disk under the text of the kernel, the chip and the versions, and is not measured again.
A kernel that cannot be timed, or for which no time is left, is launched as schedule/tile_gpu.py says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from time import monotonic  # by name: the program may replace the functions of `time`
from typing import Any

from frameloom.backend import launch_timer
from frameloom.codegen.schedule.tune import Tuning
from frameloom.codegen.triton.launch import LaunchEntry, LaunchSource
from frameloom.codegen.triton.module import Variants
from frameloom.debug import log
from frameloom.runtime.build.cache import DiskCache, digest, shared_cache
from frameloom.runtime.build.triton_compiler import Cubin, try_build
from frameloom.runtime.build.triton_pool import triton_identity

SECONDS = 60.0  # for the kernels of one program
GAIN = 0.98  # of the default's time: a configuration that takes longer does not replace it
INFINITE = float("inf")
# Returns the seconds of each source on a device; infinite for one that cannot run.  RuntimeError: nothing can
# be timed now.
Measure = Callable[[Sequence[tuple[LaunchSource, Cubin]], str], list[float]]


def tuned(
    kernels: Sequence[Variants],
    device: str,
    measure: Measure | None = None,
    cache: DiskCache | None = None,
    seconds: float = SECONDS,
) -> list[LaunchSource]:
    """Returns a source per kernel, for `device`."""
    timer = measure or launch_timer.measure
    cache = cache or shared_cache()
    deadline = monotonic() + seconds
    return [_chosen(v, device, timer, cache, deadline) for v in kernels]


def _chosen(
    kernel: Variants, device: str, measure: Measure, cache: DiskCache, deadline: float
) -> LaunchSource:
    default = kernel.source()
    if _varies(default):
        log("timing", f"{default.symbol}: not tuned: no one size to time it at")
        return default
    key = _key(default, kernel)
    cached = cache.get(key, ".tuning")
    if cached is not None:
        choice = json.loads(cached)
        return kernel.source(Tuning.from_json(choice)) if choice else default
    tunings = kernel.tunings
    if not tunings:
        return default
    if monotonic() > deadline:
        log("timing", f"{default.symbol}: no time left to tune it")
        return default
    sources = [default, *(kernel.source(t) for t in tunings)]
    try:
        taken = _times(sources, device, kernel.chip.arch, measure)
    except RuntimeError as error:  # not enough memory, a stream that is being recorded
        log("timing", f"{default.symbol}: not tuned: {error}")
        return default
    best = min(range(len(sources)), key=taken.__getitem__)
    if taken[best] > GAIN * taken[0] or taken[best] == INFINITE:
        best = 0
    log("timing", _timing_message(default.symbol, tunings, taken, best))
    choice = tunings[best - 1].to_json() if best else None
    cache.put(key, ".tuning", json.dumps(choice).encode())
    return sources[best]


def _times(
    sources: Sequence[LaunchSource], device: str, arch: int, measure: Measure
) -> list[float]:
    built = try_build(sources, arch)
    able = [i for i, cubin in enumerate(built) if cubin is not None]
    pairs: Any = [(sources[i], built[i]) for i in able]
    taken = [INFINITE] * len(sources)
    for i, seconds in zip(able, measure(pairs, device), strict=True):
        taken[i] = seconds
    return taken


def _varies(source: LaunchSource) -> bool:
    """Whether the kernel has symbolic sizes."""
    buffers = [b for e in source.entries if isinstance(e, LaunchEntry) for b in e.buffers]
    sizes = [*source.grid, *(n for b in buffers for n in (*b.shape, *b.strides))]
    return bool(source.sizes) or any(not isinstance(n, int) for n in sizes)


def _key(default: LaunchSource, kernel: Variants) -> str:
    # Without comments: they name lines of the program, which do not matter for speed.
    lines = [t for t in default.text.splitlines() if not t.lstrip().startswith("#")]
    how = [default.signature, default.grid, default.warps, default.stages, str(kernel.chip)]
    return digest("tuning", "\n".join(lines), json.dumps(how), triton_identity())


def _timing_message(
    symbol: str, tunings: Sequence[Tuning], taken: Sequence[float], best: int
) -> str:
    lines = [f"{symbol}: {len(taken)} ways to launch it"]
    for i, (way, seconds) in enumerate(zip(("default", *tunings), taken, strict=True)):
        lines.append(f"  {1e6 * seconds:8.1f} us  {way}" + ("  <- chosen" if i == best else ""))
    return "\n".join(lines)
