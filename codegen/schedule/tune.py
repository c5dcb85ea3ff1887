"""Alternatives to the launch that schedule/tile_gpu.py chooses; mode="max-autotune" times them.

The candidates are near the default: a few changes of blocks, warps and stages. Each change has been the best
for some kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from frameloom.codegen.schedule.tile_gpu import AHEAD, HELD, STEP, Launch, power

MOST = 12  # maximum candidates of a kernel
TILE = 32768  # maximum positions of a block
WARPS = (1, 2, 4, 8, 16, 32)
SHARES = (1, 128)  # minimum and maximum positions of a thread

# The changes to try, the most promising first. Blocks and warps are multiples of the default, unless noted.
# fmt: off
FLAT = (  # block, warps (as they are)
    (1, 8), (1, 2), (2, 4), (2, 8), (0.5, 4), (4, 4), (4, 8), (0.5, 2), (1, 4), (0.25, 4), (4, 16),
)
TILES_2D = ((1, 1), (0.5, 1), (1, 0.5), (0.5, 0.5), (2, 0.5), (0.5, 2), (2, 1))  # blocks
LOOPS = ((STEP, 8), (2 * STEP, 16), (STEP // 2, 4))  # positions of a step, warps (as they are)
OUTER = ((1, 2), (1, 0.5), (2, 1), (0.5, 1), (2, 2), (1, 4), (0.5, 0.5), (4, 2))  # blocks, warps
STEPS = (  # positions of a step, warps, stages (0: the default's)
    (2, 2, 0), (1, 1, 2), (2, 1, 0), (0.5, 1, 0), (1, 1, 1), (4, 2, 0),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Tuning:
    """A choice for a Launch. `blocks`: block sizes of its parallel dimensions, in order; `inner`: that of its
    inner dimension, 0 if it has none."""

    blocks: tuple[int, ...]
    inner: int
    warps: int
    stages: int
    persistent: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Tuning:
        return Tuning(**{**fields, "blocks": tuple(fields["blocks"])})


def of(launch: Launch) -> Tuning:
    """Returns the Tuning that changes nothing."""
    blocks = tuple(d.block for d in launch.parallel)
    inner = launch.inner.block if launch.inner else 0
    return Tuning(blocks, inner, launch.warps, launch.stages, launch.persistent)


def apply(launch: Launch, tuning: Tuning) -> None:
    """Gives `launch`, a newly made one, the blocks, warps and stages of `tuning`."""
    assert len(tuning.blocks) == len(launch.parallel)
    for d, block in zip(launch.parallel, tuning.blocks, strict=True):
        d.block = block
    if launch.inner is not None:
        launch.inner.block = tuning.inner
    launch.warps, launch.stages, launch.persistent = (
        tuning.warps, tuning.stages, tuning.persistent,
    )  # fmt: skip


def candidates(launch: Launch) -> list[Tuning]:
    """Returns at most MOST tunings that differ from the default of `launch`, the most promising first."""
    default = of(launch)
    tunings: dict[Tuning, None] = {}
    for one in _reductions(launch, default) if launch.inner else _pointwise(default):
        if one != default and _possible(launch, one):
            tunings[one] = None
    return list(tunings)[:MOST]


def _possible(launch: Launch, t: Tuning) -> bool:
    tile = max(1, t.inner)
    for d, block in zip(launch.parallel, t.blocks, strict=True):
        if not 1 <= block <= max(d.block, power(d.extent)):
            return False
        tile *= block
    if not t.persistent and any(f.scan for f in launch.folds):
        return False
    if launch.inner is not None and t.inner < (launch.inner.extent if t.persistent else 2):
        return False
    if t.warps not in WARPS or tile > TILE:
        return False
    share = tile / (32 * t.warps)
    return (t.warps == 1 or share >= SHARES[0]) and share <= SHARES[1]


def _pointwise(t: Tuning) -> Iterator[Tuning]:
    if len(t.blocks) == 1:
        for times, warps in FLAT:
            yield replace(t, blocks=(int(t.blocks[0] * times),), warps=warps)
        return
    for y, x in TILES_2D:
        blocks = (int(t.blocks[0] * y), int(t.blocks[1] * x))
        for warps in (4, 8):
            yield replace(t, blocks=blocks, warps=warps)


def _reductions(launch: Launch, t: Tuning) -> Iterator[Tuning]:
    assert launch.inner is not None
    (block,) = t.blocks
    length = launch.inner.extent
    if t.persistent:
        for step, warps in LOOPS:
            inner = max(1, step // block)
            if inner < length:
                yield replace(t, inner=inner, warps=warps, stages=AHEAD, persistent=False)
    elif power(length) * block <= 2 * HELD:
        warps = max(4, min(32, power(length) * block // 1024))
        yield replace(t, inner=power(length), warps=warps, stages=1, persistent=True)
    for outer, warps in OUTER:
        yield replace(t, blocks=(int(block * outer),), warps=int(t.warps * warps))
    if not t.persistent:
        for inner, warps, stages in STEPS:
            more = int(t.inner * inner), int(t.warps * warps)
            yield replace(t, inner=more[0], warps=more[1], stages=stages or t.stages)
