"""Triton text of the reductions of a launch: in a loop over the inner dimension, with an accumulator per
lane, or at once over a whole tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.codegen.operators import INFIX
from frameloom.codegen.schedule.cost import size
from frameloom.codegen.schedule.layout import place_in
from frameloom.codegen.schedule.row_patterns import LOWEST
from frameloom.codegen.schedule.tile_gpu import Fold
from frameloom.codegen.sizes import count_dtype
from frameloom.codegen.triton.ops import TYPES, full, literal
from frameloom.codegen.triton.scope import Value
from frameloom.ir.dtype import DType
from frameloom.ir.ops import Op
from frameloom.ir.reductions import identity

if TYPE_CHECKING:
    from frameloom.codegen.triton.function import Writer

LOG2E = 1.4426950408889634


def fold_pass(writer: Writer, folds: list[Fold], online: dict[Fold, Fold]) -> None:
    """Writes one loop that computes `folds`. For a max that `online` has as a key, the loop also computes the
    sum of exponentials."""
    accumulators = {f: writer.fresh("acc") for f in folds}
    sums = {online[f]: writer.fresh("acc") for f in folds if f in online}
    for f, name in accumulators.items():
        neutral = identity(f.arg.kind, f.value.dtype) if f not in online else LOWEST
        text = full(neutral, f.value.dtype).replace("()", writer.shape(), 1)
        writer.line(f"{name} = {text}")
        if f.arg.row.position:
            place = count_dtype(size(f.arg.axes))
            last = (1 << (8 * place.bytes - 1)) - 1
            writer.line(f"{name}_at = tl.full({writer.shape()}, {last}, {TYPES[place]})")
    for name in sums.values():
        writer.line(f"{name} = tl.zeros({writer.shape()}, tl.float32)")

    def work() -> None:
        for f, name in accumulators.items():
            if f in online:
                _accumulate_online(writer, f, name, sums[online[f]])
            else:
                _accumulate(writer, f, name)

    writer.pass_over(work)
    for f, name in accumulators.items():
        if f in online:
            _bind_online(writer, f, name, online[f], sums[online[f]])
        else:
            _bind_result(writer, f, _reduced(writer, f, name, f"{name}_at"))


def _accumulate_online(writer: Writer, f: Fold, most: str, total: str) -> None:
    """Writes the update of the maximum of every lane so far, and of the sum of exponentials relative to
    it."""
    value, part = writer.fresh(), writer.fresh()
    writer.line(f"{value} = {_folded(writer, f)}")
    power = writer.function(Op.EXP2, DType.F32)
    writer.line(f"{part} = {power}(tl.abs({value} - {most}) * {-LOG2E!r})")
    writer.line(
        f"{total} = tl.where({value} > {most}, tl.fma({total}, {part}, 1.0), {total} + {part})"
    )
    writer.line(f"{most} = {writer.helper('_max')}({most}, {value})")


def _bind_online(writer: Writer, f: Fold, most: str, sum_: Fold, total: str) -> None:
    greatest, whole = writer.fresh(), writer.fresh()
    writer.line(f"{greatest} = {_reduced(writer, f, most, '')}")
    lanes = f"{total} * tl.exp({most} - {greatest})"
    writer.line(f"{whole} = {_reduced(writer, sum_, lanes, '')}")
    # The sum is 0: no element is greater than -inf.
    _bind_result(writer, f, f'tl.where({whole} == 0.0, -float("inf"), {greatest})')
    _bind_result(writer, sum_, f'tl.where({whole} == 0.0, float("nan"), {whole})')


def _accumulate(writer: Writer, f: Fold, name: str) -> None:
    value = _folded(writer, f)
    if f.arg.row.position:
        combine = _place_helper(writer, f)
        place = _place(writer, f)
        writer.line(f"{name}, {name}_at = {combine}({name}, {name}_at, {value}, {place})")
        return
    if f.op in INFIX:
        writer.line(f"{name} = ({name} {INFIX[f.op]} {value}).to({TYPES[f.value.dtype]})")
    elif f.value.dtype.is_float:
        writer.line(f"{name} = {_helper(writer, f)}({name}, {value})")
    else:
        writer.line(f"{name} = tl.{f.op.value}imum({name}, {value})")


def _helper(writer: Writer, f: Fold) -> str:
    """Returns the name of a function that combines two values."""
    return writer.helper(f"_{f.op.value}")


def _place_helper(writer: Writer, f: Fold) -> str:
    """Returns the name of a function that combines two values and their places."""
    return writer.helper("_argmax" if f.arg.row.op is Op.MAX else "_argmin")


def fold_at_once(writer: Writer, f: Fold) -> None:
    """Writes a reduction, or a scan, of a tile that holds all positions."""
    if f.scan:
        return _bind_result(writer, f, _scanned(writer, f))
    place = _place(writer, f) if f.arg.row.position else ""
    _bind_result(writer, f, _reduced(writer, f, _folded(writer, f), place))


def _scanned(writer: Writer, f: Fold) -> str:
    inner = writer.launch.inner
    assert inner is not None and writer.launch.persistent
    if inner.block == 1:
        return _folded(writer, f)
    along = writer.tile.index(inner)
    return f"tl.associative_scan({_folded(writer, f)}, {along}, {_helper(writer, f)})"


def _folded(writer: Writer, f: Fold) -> str:
    """Returns the value to reduce, broadcast to the tile, with the neutral element past the end."""
    value = writer.typed(f.value)
    neutral = literal(identity(f.arg.kind, f.value.dtype), f.value.dtype)
    inner = writer.launch.inner
    assert inner is not None
    mask = writer.masks.get(inner.name)
    if writer.dims_of(f.value) != frozenset(d.name for d in writer.tile):
        zero = f"tl.zeros({writer.shape()}, tl.int1)"
        value = f"tl.where({zero}, {neutral}, {value})"
    if mask is not None:
        value = f"tl.where({mask}, {value}, {neutral})"
    return value


def _place(writer: Writer, f: Fold) -> str:
    """Returns the position that argmax counts, broadcast to the tile."""
    dtype = count_dtype(size(f.arg.axes))
    place = writer.operand(place_in(f.arg.axes), dtype)
    return f"{place} + tl.zeros({writer.shape()}, {TYPES[dtype]})"


def _reduced(writer: Writer, f: Fold, value: str, place: str) -> str:
    inner = writer.launch.inner
    assert inner is not None
    dtype = f.value.dtype
    if inner.block == 1:
        return place if f.arg.row.position else value
    at = writer.tile.index(inner)
    if f.arg.row.position:
        name = writer.fresh()
        combine = _place_helper(writer, f)
        writer.line(f"_, {name} = tl.reduce(({value}, {place}), {at}, {combine})")
        text = name
    elif dtype is DType.BOOL:
        text = f"(tl.{'max' if f.op is Op.OR else 'min'}(({value}).to(tl.int32), {at}) != 0)"
    elif f.op is Op.ADD:
        text = f"tl.sum({value}, {at})"
    elif f.op in (Op.MAX, Op.MIN) and not dtype.is_float:
        text = f"tl.{f.op.value}({value}, {at})"
    else:
        text = f"tl.reduce({value}, {at}, {_helper(writer, f)})"
    return f"{text}[:, None]" if len(writer.tile) == 2 else text


def _bind_result(writer: Writer, f: Fold, text: str) -> None:
    name = writer.fresh("f")
    writer.line(f"{name} = ({text}).to({TYPES[f.result.dtype]})", writer.top)
    writer.top.names[f.result] = Value(name, f.result.dtype)
