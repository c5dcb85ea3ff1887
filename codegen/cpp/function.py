"""Turns a loop tree into the text of one C++ function.

Accumulators of a loop nest are declared before it and combined after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from frameloom.codegen.cpp.accumulator_strips import TERM
from frameloom.codegen.cpp.prelude import ELEMENTS, Prelude
from frameloom.codegen.cpp.scatter import write_scatter
from frameloom.codegen.cpp.threads import Threads
from frameloom.codegen.cpp.transpose_tiles import TransposeTiles
from frameloom.codegen.schedule.loop_nest import Accumulate, Assign, Blocked, Pass, Tree, is_blocked
from frameloom.codegen.schedule.scratch import is_scratch
from frameloom.codegen.sizes import SIZE, named
from frameloom.ir.node import Axis, axis
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.substitute import loads
from frameloom.ir.symbolic.expr import Size


def write(
    kernel: Kernel, tree: Tree, symbol: str, prelude: Prelude
) -> tuple[str, tuple[Size, ...]]:
    """Returns the text of the function `symbol(void *const *buffers, const long *sizes)`, and those sizes."""
    writer = Loops(prelude)
    for i, buffer in enumerate(tree.buffers):
        name = f"p{i}"
        element = ELEMENTS[buffer.dtype]
        place = f"&buffers[{i}]" if buffer.kind is Kind.NUMBER else f"buffers[{i}]"
        writer.line(f"{element} *const {name} = ({element} *){place};  // {buffer.name}")
        writer.pointers[buffer] = name
    memory = writer.scratch(tree.scratch)
    writer.block(tree.body)
    if memory:
        writer.line(f"__builtin_free({memory});")
    notes = "".join(f"// {line}\n" for text in kernel.origin for line in text.splitlines())
    # Volatile: otherwise the compiler may read two entries with one load. Such a load waits until both
    # entries, which the caller has just written, are in the cache.
    head = (
        f'extern "C" int {symbol}(void *const volatile *buffers, const volatile long *sizes) {{\n'
    )
    body, sizes = named("\n".join(writer.scopes[0].lines))
    given = "".join(f"  const i64 {SIZE}{k} = sizes[{k}];\n" for k in range(len(sizes)))
    return notes + head + given + body + "\n  return 0;\n}\n", sizes


class Loops(Threads, TransposeTiles):
    """Writes blocks and loop nests."""

    def block(self, body: list[Pass | Assign | Accumulate], scan: bool = False) -> None:
        stores = [i for i in body if isinstance(i, Assign)]
        written = {i.buffer for i in stores if not is_scratch(i.buffer)}
        # If several items read a buffer that one of them overwrites (elementwise.py), all values are computed
        # first.
        if any(n.arg in written and n.arg != i.buffer for i in stores for n in loads([i.value])):
            for item in stores:
                self.value(item.value)
        for item in body:
            if isinstance(item, Assign) and item.scatter is not None:
                write_scatter(self, item)
            elif isinstance(item, Assign):
                self.store(item.buffer, item.offset, item.value)
            elif isinstance(item, Accumulate) and scan:
                self.scan(item.fold)
            elif isinstance(item, Accumulate):
                self.accumulate(item.fold)
            elif item.parallel and item.folds:
                self.chunks(item)
            elif item.parallel:
                self.rows(item)
            else:
                self._plain(item)

    def _plain(self, p: Pass) -> None:
        for row in p.keeps:
            self.declare_row(row, p)
        self.start_folds(p)
        self._loops(p, p.axes, "0", None)
        self.finish_folds(p)

    def scratch(self, buffers: Sequence[Buffer]) -> str | None:
        """Allocates one block of memory for all buffers and returns its name."""
        if not buffers:
            return None
        memory, total = self.fresh("memory"), 0
        at = {}
        for buffer in buffers:
            at[buffer] = total
            total += (math.prod(buffer.shape) * buffer.dtype.bytes + 63) // 64 * 64
        self.line(f"char *const {memory} = (char *)__builtin_malloc({total});")
        self.line(f"if (!{memory}) return 1;")
        for buffer, start in at.items():
            name, element = self.fresh("p_"), ELEMENTS[buffer.dtype]
            self.line(f"{element} *const {name} = ({element} *)({memory} + {start});")
            self.pointers[buffer] = name
        return memory

    # --- loops

    def _loops(self, p: Pass, axes: tuple[Axis, ...], start: str, end: str | None) -> None:
        """Writes the loops over `axes`; `start` and `end` bound the lane axis."""
        if not axes:
            self._body(p)
            return
        # A long sum is cut at the axis that has about TERM steps inside.
        cut = self.cut(p, axes, TERM)
        a, inner = axes[0], axes[1:]
        lanes = a == p.vector
        if cut is None:
            block_end = self._end_of_block(p.blocked) if is_blocked(p, a) else None
            if lanes:
                self._lane_loop(p, start, block_end or end)
            else:
                name, last = self.fresh("n"), block_end or a.extent
                self.open(f"for (i64 {name} = 0; {name} < {last}; {name}++)", {a: name})
                self._loops(p, inner, start, end)
                self.close()
            return
        outer = self.fresh("cut")
        last = end or str(a.extent)
        self.open(
            f"for (i64 {outer} = {start if lanes else 0}; {outer} < {last}; {outer} += {cut})"
        )
        limit = self.end_of_step(outer, cut, last)
        self.start_terms(p)
        if lanes:
            self._lane_loop(p, outer, limit)
        else:
            name = self.fresh("n")
            self.open(f"for (i64 {name} = {outer}; {name} < {limit}; {name}++)", {a: name})
            self._loops(p, inner, start, end)
            self.close()
        self.finish_terms(p)
        self.close()

    def _end_of_block(self, blocked: Blocked) -> str:
        length, number = blocked.within.extent, self.value(axis(blocked.blocks)).texts[0]
        end = self.fresh("to")
        left = f"{blocked.extent} - {number} * {length}"
        self.line(f"const i64 {end} = {left} < {length} ? {left} : {length};")
        return end

    def _lane_loop(self, p: Pass, start: str, end: str | None) -> None:
        if p.transposed is not None:
            self.transpose_tiles(p, start, end, self._body)
        elif p.strip:
            self.accumulator_strips(p, start, end)
        else:
            self.by_lanes(p, start, end, self._body)

    def _body(self, p: Pass) -> None:
        for row in p.reads:
            self.read_row(row)
        self.block(p.body, p.scan)
        for row in p.keeps:
            self.write_row(row)
