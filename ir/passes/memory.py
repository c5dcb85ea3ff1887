"""The arena: one block of scratch memory per call and device, which holds the TEMP buffers.

Two buffers share bytes only if no step needs both.  Large buffers are placed first, each into the tightest
gap that is free during its whole life.  On a GPU, still larger buffers are not in the arena: each is
allocated only for its life, and shares memory with the results of library calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from frameloom.ir.program import Buffer, Kind, Program, is_cuda
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int, Size, hint_of, largest

ALIGNMENT = 64
SMALL = 4096  # bytes
LARGE = 1 << 20  # bytes; PyTorch's allocator keeps smaller blocks in separate pools


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offsets of TEMP buffers in the arena of their device, and the total size of all arenas.  TEMP
    buffers without an offset are allocated from their first use to their last."""

    offsets: dict[Buffer, Int]
    arena_bytes: Int


def plan_memory(program: Program) -> MemoryPlan:
    """Places the TEMP buffers of `program`."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for k, step in enumerate(program.steps):
        for buffer in step.buffers:
            if (
                buffer.kind is Kind.TEMP
                and not _has_own_allocation(buffer)
                and not _is_unbacked(buffer)
            ):
                first, _ = lives.get(buffer, (k, k))
                lives[buffer] = (first, k)
    sized = {b: life for b, life in lives.items() if isinstance(size_in_bytes(b), Size)}
    lives = {b: life for b, life in lives.items() if b not in sized}
    offsets: dict[Buffer, Int] = {}
    totals: dict[str, Int] = {}
    # Start and length of blocks, by device and step: `needed` has the blocks that a step needs, `begun` the
    # blocks whose first use is this step.
    needed: dict[tuple[str, int], list[tuple[int, int]]] = {}
    begun: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for block in _blocks(lives):
        lengths = [_aligned(size_in_bytes(b)) for b in block]
        head, size = block[0], sum(lengths)
        first, last = lives[head]
        device = head.device
        neighbours = [*needed.get((device, first), ())]
        for k in range(first + 1, last + 1):
            neighbours += begun.get((device, k), ())
        total = totals.get(device, 0)
        start = _tightest_gap(sorted(neighbours), size, total)
        offsets |= zip(block, accumulate(lengths[:-1], initial=start), strict=True)
        totals[device] = max(total, start + size)
        begun.setdefault((device, first), []).append((start, size))
        for k in range(first, last + 1):
            needed.setdefault((device, k), []).append((start, size))
    for device in dict.fromkeys(b.device for b in sized):
        own = {b: life for b, life in sized.items() if b.device == device}
        totals[device] = _place_sized(own, offsets, totals.get(device, 0))
    return MemoryPlan(offsets, sum(totals.values()))


def _blocks(lives: dict[Buffer, tuple[int, int]]) -> list[list[Buffer]]:
    """Returns the groups of buffers to place, the largest first.  Small buffers with one life form one group,
    because steps over lists have thousands of them."""
    blocks: dict[Any, list[Buffer]] = {}
    for buffer, life in lives.items():
        key = (buffer.device, life) if size_in_bytes(buffer) <= SMALL else buffer
        blocks.setdefault(key, []).append(buffer)

    def order(block: list[Buffer]) -> Any:
        return -sum(map(size_in_bytes, block)), lives[block[0]], block[0].name

    return sorted(blocks.values(), key=order)


def _place_sized(
    lives: dict[Buffer, tuple[int, int]], offsets: dict[Buffer, Int], start: Int
) -> Int:
    """Places buffers of symbolic size behind the others, in slots: a slot is as large as the largest of the
    buffers that use it one after the other."""
    slots: list[list[Buffer]] = []
    for buffer in sorted(lives, key=lambda b: (-hint_of(size_in_bytes(b)), lives[b], b.name)):
        first, last = lives[buffer]
        free = [
            slot for slot in slots if all(lives[b][0] > last or lives[b][1] < first for b in slot)
        ]
        size = size_in_bytes(buffer)
        same_size = [slot for slot in free if same(size_in_bytes(slot[0]), size)]
        if chosen := same_size or free:
            chosen[-1].append(buffer)
        else:
            slots.append([buffer])
    for slot in slots:
        for buffer in slot:
            offsets[buffer] = start
        start = start + _aligned(largest(*(size_in_bytes(b) for b in slot)))
    return start


def _has_own_allocation(buffer: Buffer) -> bool:
    return is_cuda(buffer.device) and hint_of(size_in_bytes(buffer)) >= LARGE


def _is_unbacked(buffer: Buffer) -> bool:
    """Whether the layout is unknown when a call begins, even if the buffer is known to have no elements."""
    return any(unbacked_in(n) for n in (*buffer.shape, *buffer.strides))


def _tightest_gap(taken: list[tuple[int, int]], size: int, total: int) -> int:
    best: tuple[int, int] | None = None
    end = 0
    for offset, length in taken:
        room = offset - end
        if room >= size and (best is None or room < best[0]):
            best = (room, end)
        end = max(end, offset + length)
    # The gap at the end counts only as far as the arena has that size already.
    room = total - end
    if best is None or size <= room < best[0]:
        best = (room, end)
    return best[1]


def _aligned(size: Int) -> Int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def size_in_bytes(buffer: Buffer) -> Int:
    """Returns the bytes from the first element to the end of the last."""
    if 0 in buffer.shape:
        return 0
    item = buffer.dtype.bytes if buffer.dtype is not None else buffer.torch_dtype.itemsize
    return item * (1 + sum((e - 1) * s for e, s in zip(buffer.shape, buffer.strides, strict=True)))
