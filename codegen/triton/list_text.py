"""Turns a KernelList into the text of one Triton kernel, which is the same for lists of any length and sizes.

A block handles up to `block` elements of one row. `blocks` has two numbers per block: the row, and how many
whole blocks of the row come before. `table` has the addresses of a row, `fixed` its extent and numbers. The
text handles elements in two branches: one for full blocks at addresses that are multiples of 16, with wide
accesses and no masks, and one for all others.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import torch

from frameloom.codegen.schedule.tile_gpu import Dimension, Launch
from frameloom.codegen.triton.chip import Chip
from frameloom.codegen.triton.function import HEAD, Writer, number_text
from frameloom.codegen.triton.launch import LaunchSource, ListEntry
from frameloom.codegen.triton.ops import HELPERS, TYPES
from frameloom.codegen.triton.scope import Value
from frameloom.ir.dtype import DType
from frameloom.ir.kernel_list import ALONG, FIRST, KernelList, Template
from frameloom.ir.node import load
from frameloom.ir.ops import Op
from frameloom.ir.passes.memory import size_in_bytes
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.substitute import topological

WARPS = 8
ALIGNMENT = 16


def generate_lists(lists: Sequence[KernelList], chip: Chip) -> list[LaunchSource]:
    """Returns a source for every list. Isomorphic lists have equal texts, which are compiled once."""
    return [_source(one, chip) for one in lists]


def blocks_of(one: KernelList, chip: Chip) -> tuple[int, int]:
    """Returns elements and warps of a block. A thread has one wide access of each tensor: with more, a
    kernel of many tensors needs so many registers that few blocks fit on a multiprocessor. If the total
    number of elements is small, blocks are small, so that all multiprocessors have work."""
    moving = [b for b in one.template.columns if b.kind is not Kind.NUMBER]
    widest = max(b.dtype.bytes for b in moving if b.dtype is not None)
    each = 32 * max(1, ALIGNMENT // widest)
    total = sum(r.extent for r in one.instances)
    if total >= 2 * WARPS * each * chip.multiprocessors:
        return WARPS * each, WARPS
    return WARPS // 2 * each, WARPS // 2


def _source(one: KernelList, chip: Chip) -> LaunchSource:
    block, warps = blocks_of(one, chip)
    moved = sum(map(size_in_bytes, [*one.reads, *one.writes]))
    lines, helpers = _lines(one.template, block)
    stem = re.sub(r"\W", "_", re.sub(r"_\d+_list$", "", one.name))
    symbol = f"k_{stem}_list"
    code = f"@triton.jit\ndef {symbol}(table, fixed, blocks):\n" + "\n".join(lines) + "\n"
    texts = "".join(f"\n\n@triton.jit\n{HELPERS[h]}\n" for h in helpers)
    words = tuple(
        (
            r.extent,
            *(_word(v, b.dtype) for v, b in zip(r.numbers, one.template.numbers, strict=True)),
        )
        for r in one.instances
    )
    columns = tuple(r.columns for r in one.instances)
    return LaunchSource(
        text=f"{HEAD}{texts}\n\n{code}",
        symbol=symbol,
        signature=("*i64", "*i64", "*i32"),
        grid=(sum(-(-r.extent // block) for r in one.instances), 1, 1),
        warps=warps,
        entries=(ListEntry(one.name, columns, words, block, moved, code),),
    )


def _word(value: bool | int | float, dtype: DType | None) -> int:
    """Returns a number as the 64 bits that the kernel reads."""
    if dtype is DType.F64:
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    if dtype is not None and dtype.is_float:
        bits = {4: torch.int32, 2: torch.int16}[dtype.bytes]
        return int(torch.tensor(value, dtype=dtype.to_torch()).view(bits))
    return int(value)


def _number(text: str, dtype: DType | None) -> str:
    """Returns the text of the number whose bits `text` has."""
    assert dtype is not None
    if not dtype.is_float:
        return f"{text} != 0" if dtype is DType.BOOL else f"{text}.to({TYPES[dtype]})"
    narrow = {8: "", 4: ".to(tl.int32)", 2: ".to(tl.int16)"}[dtype.bytes]
    return f"{text}{narrow}.to({TYPES[dtype]}, bitcast=True)"


def _lines(one: Template, block: int) -> tuple[list[str], list[str]]:
    """Returns the body, and the helper functions that it calls."""
    nodes = topological([s.value for s in one.stores])
    along = {n.arg for n in nodes if n.op is Op.LOAD and n.srcs[0] is not FIRST}
    along |= {s.buffer for s in one.stores}
    width, numbers = len(one.columns), 1 + len(one.numbers)
    lines = [
        "pid = tl.program_id(0)",
        "row = tl.load(blocks + 2 * pid).to(tl.int64)",
        f"at = tl.load(blocks + 2 * pid + 1).to(tl.int64) * {block}",
        f"left = tl.load(fixed + row * {numbers}) - at",
    ]
    known = {}
    for k, b in enumerate(one.columns):
        lines.append(f"a{k} = tl.load(table + row * {width} + {k})")
        if b not in along:
            text = f"tl.load(a{k}.to({_pointer(b)}))"
            if b.kind is Kind.NUMBER:
                text = number_text(f"a{k}", b.dtype)
            lines.append(f"s{k} = {text}")
            known[load(b, FIRST)] = Value(f"s{k}", b.dtype)
    for k, b in enumerate(one.numbers):
        text = f"tl.load(fixed + row * {numbers} + {k + 1})"
        lines.append(f"c{k} = {_number(text, b.dtype)}")
        known[load(b, FIRST)] = Value(f"c{k}", b.dtype)
    moving = [(k, b) for k, b in enumerate(one.columns) if b in along]
    bits = " | ".join(f"a{k}" for k, _ in moving)
    lines.append(f"if (left >= {block}) & ((({bits}) & {ALIGNMENT - 1}) == 0):")
    helpers: dict[str, None] = {}
    for full in (True, False):
        for k, b in moving:
            pointer = f"a{k}.to({_pointer(b)})"
            if full:
                pointer = f"tl.multiple_of({pointer}, {ALIGNMENT})"
            lines.append(f"    p{k} = {pointer} + at")
        writer = _ListWriter(one, block, {b: f"p{k}" for k, b in moving}, full)
        writer.top.names.update(known)
        lines += writer.body()
        helpers |= writer.helpers
        if full:
            lines.append("else:")
    return [f"    {line}" for line in lines], list(helpers)


def _pointer(buffer: Buffer) -> str:
    assert buffer.dtype is not None
    return f"tl.pointer_type({TYPES[buffer.dtype]})"


class _ListWriter(Writer):
    """Writes the elements of a block. Positions are counted from the start of the block."""

    def __init__(self, one: Template, block: int, pointers: dict[Buffer, str], full: bool) -> None:
        launch = Launch([Dimension("x", (ALONG,), block)], None, [], list(one.stores))
        super().__init__(launch, pointers)
        self.full = full

    def _loads_first(self) -> None:
        """Defines all loads before any computation: they are not moved over the branches of a division."""
        for n in topological([s.value for s in self.launch.stores]):
            if n.op is Op.LOAD and n.srcs[0] is not FIRST:
                self.value(n)

    def _positions(self) -> None:
        (d,) = self.dims
        self.line(f"{d.name} = tl.arange(0, {d.block})")
        if not self.full:
            self.line(f"{d.name}_in = {d.name} < left")
            self.masks[d.name] = f"{d.name}_in"
