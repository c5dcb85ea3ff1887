"""Transposed loads in C++: square tiles that are contiguous along an axis other than the lanes go through
a larger tile in the cache.

After that, everything else is read and written row by row, in runs of SPAN positions. A single square would
touch as many rows as there are lanes, one cache line of each. Rows that are a power of two apart map to the
same set of the first-level cache, which has fewer ways than that.
"""

from __future__ import annotations

from collections.abc import Callable

from frameloom.codegen.cpp.lanes import LaneLoops
from frameloom.codegen.cpp.memory import element
from frameloom.codegen.cpp.value import Value
from frameloom.codegen.schedule.layout import stride
from frameloom.codegen.schedule.loop_nest import TRANSPOSE_BLOCK, Pass
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node, axis
from frameloom.ir.symbolic.expr import Size


class TransposeTiles(LaneLoops):
    """Adds loop nests with transposed loads."""

    def transpose_tiles(
        self, p: Pass, start: str, end: str | None, body: Callable[[Pass], None]
    ) -> None:
        """Writes loops over TRANSPOSE_BLOCK positions of the other axis times the lane positions from `start`
        to `end`, one tile at a time."""
        plan = p.transposed
        whole = self.fresh("n")
        self.line(
            f"const i64 {whole} = {self.value(axis(plan.block)).texts[0]} * {TRANSPOSE_BLOCK};"
        )
        last = self.end_of_step(whole, TRANSPOSE_BLOCK, plan.axis.extent)
        pitch = plan.span + 64 // min(load.dtype.bytes for load in plan.loads)
        tiles = []
        for load in plan.loads:
            name = self.fresh("tile")
            self.line(
                f"{element(load)} {name}[{TRANSPOSE_BLOCK * pitch}] __attribute__((aligned(64)));"
            )
            tiles.append(name)
        span = self.fresh("span")
        lanes_end = end or str(p.vector.extent)
        self.open(f"for (i64 {span} = {start}; {span} < {lanes_end}; {span} += {plan.span})")
        limit = self.end_of_step(span, plan.span, lanes_end)

        def place(tile: str, n: str) -> str:
            return f"{tile} + ({n} - {whole}) * {pitch} + ({self.lanes.variable} - {span})"

        def fill(p: Pass) -> None:
            first = self.fresh("n")
            self.line(f"i64 {first} = {whole};")
            if isinstance(plan.axis.extent, Size) or plan.axis.extent >= p.lanes:
                self.open(f"for (; {first} <= {last} - {p.lanes}; {first} += {p.lanes})")
                for load, tile in zip(plan.loads, tiles, strict=True):
                    self._transpose_tile(p, load, first, p.lanes, place(tile, first), pitch)
                self.close()
            if (rest := plan.axis.extent % p.lanes) != 0:
                self.open(f"if ({first} < {last})")
                if isinstance(rest, Size):
                    rest = f"({last} - {first})"
                for load, tile in zip(plan.loads, tiles, strict=True):
                    self._transpose_tile(p, load, first, rest, place(tile, first), pitch)
                self.close()

        self.by_lanes(p, span, limit, fill, 1)
        n = self.fresh("n")
        self.open(f"for (i64 {n} = {whole}; {n} < {last}; {n}++)", {plan.axis: n})

        def row(p: Pass) -> None:
            for load, tile in zip(plan.loads, tiles, strict=True):
                self._read(load, place(tile, n))
            body(p)

        self.by_lanes(p, span, limit, row)
        self.close()
        self.close()

    def _transpose_tile(
        self, p: Pass, load: Node, first: str, count: int | str, place: str, pitch: int
    ) -> None:
        """Transposes `count` positions of the other axis from `first` on, times the current lanes, into the
        tile."""
        lanes, type_ = self.lanes, element(load)
        v = self.prelude.vector(type_, lanes.width)
        call = self.prelude.function("transpose", type_, lanes.width)
        step, rest = stride(load.srcs[0], lanes.axis)
        _, rest = stride(rest, p.transposed.axis)
        name = self.fresh("t")
        pointer = f"(const {type_} *){self.pointers[load.arg]}"
        at = f"{pointer} + {self.value(rest).texts[0]} + {first} + {step} * {lanes.variable}"
        self.line(f"{v} {name}[{lanes.width}];")
        if isinstance(lanes.count, str) or isinstance(count, str):
            self.line(f"{call}({name}, {at}, {step}, {lanes.count}, {count});")
        else:
            self.line(f"{call}<{lanes.count}, {count}>({name}, {at}, {step});")
        self.line(
            f"{'' if isinstance(count, str) else 'EACH '}for (int i = 0; i < {count}; i++) store({place} + i * {pitch}, {name}[i]);"
        )

    def _read(self, load: Node, place: str) -> None:
        """Gives the load its value from the tile."""
        lanes = self.lanes
        v = self.prelude.vector(element(load), lanes.width)
        names = []
        for u in range(lanes.unroll):
            text = f"load<{v}>({place} + {u * lanes.width})"
            if load.dtype is DType.BOOL:
                text = "-" + self.converted(text, self.prelude.mask(lanes.width))
            type_ = self.type_of(load.dtype, lanes.width)
            names.append(self.fresh("k"))
            self.line(f"const {type_} {names[-1]} = {text};")
        self.bind(load, Value(tuple(names), load.dtype, True))
