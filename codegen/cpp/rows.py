"""Row buffers in C++: arrays of elements, or of vectors inside a lane loop around the row."""

from __future__ import annotations

from frameloom.codegen.cpp.memory import Memory
from frameloom.codegen.cpp.prelude import ELEMENTS
from frameloom.codegen.cpp.value import Lanes, Value
from frameloom.codegen.schedule.cost import size
from frameloom.codegen.schedule.layout import place_in, stride
from frameloom.codegen.schedule.loop_nest import Pass, RowBuffer


class RowBuffers(Memory):
    """Adds row buffers to memory."""

    def declare_row(self, row: RowBuffer, p: Pass) -> None:
        """Declares the buffer in the current scope: vectors inside a lane loop around it, else elements."""
        name = self.fresh("row")
        if self.is_vector(row.node):
            count = size(row.axes) * self.lanes.unroll
            self.line(f"{self.type_of(row.node.dtype, self.lanes.width)} {name}[{count}];")
        else:
            count = size(row.axes) + p.lanes
            self.line(f"{ELEMENTS[row.node.dtype]} {name}[{count}] __attribute__((aligned(64)));")
        self.scopes[-1].names[row] = Value((name,), row.node.dtype)

    def _row_places(self, row: RowBuffer) -> tuple[list[str], str]:
        """Returns (an expression per unrolled copy, the vector type or "" for single elements)."""
        name = self.find(row).texts[0]
        offset = place_in(row.axes)
        if not self.is_vector(row.node):
            return [f"{name}[{self.value(offset).texts[0]}]"], ""
        lanes: Lanes = self.lanes
        if lanes.axis not in row.axes:
            base = self.value(offset).texts[0]
            return [f"{name}[{base} * {lanes.unroll} + {u}]" for u in range(lanes.unroll)], ""
        _, rest = stride(offset, lanes.axis)
        return (
            [self.place(name, rest, 1, u) for u in range(lanes.unroll)],
            self.type_of(row.node.dtype, lanes.width),
        )

    def write_row(self, row: RowBuffer) -> None:
        value = self.value(row.node)
        places, vector = self._row_places(row)
        for place, text in zip(places, value.texts, strict=True):
            self.line(f"store({place}, {text});" if vector else f"{place} = {text};")

    def read_row(self, row: RowBuffer) -> None:
        places, vector = self._row_places(row)
        texts = []
        for place in places:
            name = self.fresh("k")
            type_ = vector or (
                self.type_of(row.node.dtype, self.lanes.width)
                if self.is_vector(row.node)
                else ELEMENTS[row.node.dtype]
            )
            self.line(f"const {type_} {name} = {f'load<{vector}>({place})' if vector else place};")
            texts.append(name)
        self.bind(row.node, Value(tuple(texts), row.node.dtype, self.is_vector(row.node)))
