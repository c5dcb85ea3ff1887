"""Loads and stores in C++, by how the address changes along the lanes: contiguous, broadcast, strided, or
arbitrary."""

from __future__ import annotations

from frameloom.codegen.cpp.prelude import ELEMENTS
from frameloom.codegen.cpp.value import Value, Values
from frameloom.codegen.schedule.layout import stride
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer


class Memory(Values):
    """Adds memory accesses to values."""

    def load_texts(self, n: Node) -> list[str]:
        """Returns the expressions of a LOAD in a lane loop, one per unrolled copy."""
        offset = n.srcs[0]
        mask = self.value(n.srcs[1]) if len(n.srcs) == 2 else None
        v = self.prelude.vector(element(n), self.lanes.width)
        texts = []
        for u in range(self.lanes.unroll):
            condition = mask.texts[u] if mask is not None and mask.vector else None
            along = stride(offset, self.lanes.axis) if self.is_vector(offset) else (0, offset)
            if along is None:
                fixed, moving = self.gather_parts(n)
                base = "" if fixed is None else self.value(fixed).texts[0]
                text = self._gather(n, self.vector(moving).texts[u], v, condition, base)
            else:
                text = self._load_strided(n, *along, u, v, condition)
            if mask is not None and not mask.vector:
                text = f"({mask.texts[0]} ? {text} : {v}{{}})"
            if n.dtype is DType.BOOL:
                text = "-" + self.converted(text, self.prelude.mask(self.lanes.width))
            texts.append(text)
        return texts

    def _load_strided(
        self, n: Node, factor: int, rest: Node, u: int, v: str, condition: str | None
    ) -> str:
        lanes = self.lanes
        at = self.place(self.pointers[n.arg], rest, factor, u)
        if condition is not None and factor == 1:
            part = "masked_part" if isinstance(lanes.count, str) else "masked"
            self.prelude.function(part, element(n), lanes.width)
            return lanes.call("load_masked", _bytes(n, at), condition, f"{v}{{}}")
        if condition is not None:
            o = self.prelude.vector(DType.I64, lanes.width)
            steps = ", ".join(str(factor * (i + u * lanes.width)) for i in range(lanes.width))
            start = f"{self.value(rest).texts[0]} + {factor} * {lanes.variable}"
            return self._gather(n, f"(splat<{o}>((i64)({start})) + ({o}){{{steps}}})", v, condition)
        if factor == 0:
            return f"splat<{v}>(*({at}))"
        if factor != 1:
            return lanes.call("load_strided", at, str(factor), of=v)
        return f"load<{v}>({at})" if lanes.all_used else lanes.call("load_part", at, of=v)

    def _gather(self, n: Node, offsets: str, v: str, condition: str | None, base: str = "") -> str:
        pointer = _bytes(n, f"{self.pointers[n.arg]} + {base}" if base else self.pointers[n.arg])
        part = "gather_part" if isinstance(self.lanes.count, str) else "gather"
        self.prelude.function(part, element(n), self.lanes.width)
        if condition is not None:
            return self.lanes.call("gather_masked", pointer, offsets, condition, f"{v}{{}}")
        return self.lanes.call("gather", pointer, offsets, f"{v}{{}}")

    def place(self, pointer: str, rest: Node, factor: int, u: int) -> str:
        """Returns the address of the first lane of copy u: pointer + rest + factor * lane."""
        lanes = self.lanes
        parts = [pointer]
        if not (rest.op is Op.CONST and rest.arg == 0):
            parts.append(self.value(rest).texts[0])
        if factor:
            parts.append(lanes.variable if factor == 1 else f"{factor} * {lanes.variable}")
            if u:
                parts.append(str(factor * u * lanes.width))
        return " + ".join(parts)

    def store(self, buffer: Buffer, offset: Node, node: Node) -> None:
        """Writes buffer[offset] = node, in the current scope."""
        pointer = self.pointers[buffer]
        lanes = self.lanes
        if not self.is_vector(offset):
            value = self.value(node)
            self.line(f"{pointer}[{self.value(offset).texts[0]}] = {value.texts[0]};")
            return
        along = stride(offset, lanes.axis)
        value = self.as_dtype(self.vector(node), node.dtype)
        for u in range(lanes.unroll):
            text = self._stored_text(value, u, node.dtype)
            if along is None:
                offsets = self.vector(offset).texts[u]
                self.line(f"{lanes.call('store_at', pointer, offsets, text)};")
                continue
            at = self.place(pointer, along[1], along[0], u)
            if along[0] != 1:
                self.line(f"{lanes.call('store_strided', at, str(along[0]), text)};")
            elif lanes.all_used:
                self.line(f"store({at}, {text});")
            else:
                self.line(f"{lanes.call('store_part', at, text)};")

    def _stored_text(self, value: Value, u: int, dtype: DType) -> str:
        if dtype is not DType.BOOL:
            return self.as_dtype(value, dtype).texts[u]
        bytes_ = self.prelude.vector("i8", self.lanes.width)
        return "-" + self.converted(value.texts[u], bytes_)


def element(n: Node) -> str:
    return "u8" if n.dtype is DType.BOOL else ELEMENTS[n.dtype]


def _bytes(n: Node, pointer: str) -> str:
    return f"(const u8 *)({pointer})" if n.dtype is DType.BOOL else pointer
