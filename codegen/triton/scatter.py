"""Scatters in Triton: stores to data-dependent positions, by atomics if several positions may write one
element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.codegen.triton.ops import TYPES
from frameloom.ir.dtype import DType
from frameloom.ir.program import Store
from frameloom.ir.reductions import REDUCTIONS
from frameloom.ir.scatter import guarded

if TYPE_CHECKING:
    from frameloom.codegen.triton.function import Writer


def write_scatter(w: Writer, s: Store) -> None:
    """Writes the statement. It covers all positions of the tile, also if place and value depend on fewer
    axes."""
    assert s.scatter is not None
    mask, place = guarded(s.offset)
    if s.buffer in w.checks:
        assert mask is not None
        outside = f" | (({' & '.join(w.masks.values())}) == 0)" if w.masks else ""
        holds = f"({w.value(mask).text} == 0){outside}"
        w.line(f'tl.device_assert({holds}, "an index is out of range")')
        return
    terms = [w.operand(part, DType.I64) for part in w.parts(place)]
    value = w.operand(s.value, s.value.dtype)
    conditions = [*w.masks.values(), *([] if mask is None else [w.value(mask).text])]
    whole = frozenset(d.name for d in w.tile)
    pointer = " + ".join([w.pointers[s.buffer], *terms])
    if w.dims_of(place) != whole:
        pointer += f" + tl.zeros({w.shape()}, tl.int32)"
    if w.dims_of(s.value) != whole:
        dtype = TYPES[s.value.dtype]
        value = f"tl.where(tl.zeros({w.shape()}, tl.int1), tl.zeros({w.shape()}, {dtype}), {value})"
    inside = " & ".join(conditions) or "None"
    if mask is not None and w.dims_of(mask) != whole:
        inside += f" & (tl.zeros({w.shape()}, tl.int32) == 0)"
    if s.scatter.kind == "set":
        w.line(f"tl.store({pointer}, {value}, {inside})")
    else:
        call = f"tl.atomic_{REDUCTIONS[s.scatter.kind].op.value}"
        w.line(f'{call}({pointer}, {value}, {inside}, sem="relaxed")')
