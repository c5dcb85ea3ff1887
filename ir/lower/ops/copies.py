"""Copies that rearrange: cat, stack, pad, flip, roll, repeat; and the scatters of functionalized views."""

from __future__ import annotations

import math
from collections.abc import Sequence

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr, Number
from frameloom.ir.lower.geometry import contiguous_strides
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read
from frameloom.ir.node import Node, const
from frameloom.ir.ops import Op
from frameloom.ir.substitute import compare, conjunction, select
from frameloom.ir.symbolic.compare import bounds
from frameloom.ir.symbolic.expr import Int, hint_of

# Each operand becomes a loop of its own wherever the result is used.  So the library copies a long list of
# large operands, such as in a DenseNet, where each list is longer than the last.
MAX_OPERANDS = 16
SMALL_RESULT = 4096
MAX_SMALL_OPERANDS = 48  # for results with few elements


def check_operand_count(call: Call, tensors: Sequence[Ref]) -> None:
    few = math.prod(map(hint_of, call.shape)) <= SMALL_RESULT
    if len(tensors) > (MAX_SMALL_OPERANDS if few else MAX_OPERANDS):
        raise Decline


def within(position: Node, low: Int, high: Int) -> Node:
    """low <= position < high"""
    return conjunction(
        compare(Op.GE, position, index.index(low)), compare(Op.LT, position, index.index(high))
    )


def clamped(position: Node, last: int) -> Node:
    """Returns `position`, or the nearest position in [0, last]."""
    low, high = index.index(0), index.index(last)
    position = select(compare(Op.LT, position, low), low, position)
    return select(compare(Op.GT, position, high), high, position)


def shifted(at: Sequence[Node], dim: int, by: int) -> list[Node]:
    """Returns `at` moved by `by` along `dim`."""
    moved = list(at)
    moved[dim] = index.add(moved[dim], index.index(by))
    return moved


@lowering("aten.cat.default")
def cat(call: Call, tensors: Sequence[Ref], dim: int) -> Expr:
    check_operand_count(call, tensors)
    dim = dimension(dim, len(call.shape))
    at = call.at()
    start = 0
    parts: list[tuple[int, Expr]] = []
    for t in tensors:
        # Eager skips empty vectors, whatever the shape of the others.
        if t.shape == (0,) or t.shape[dim] == 0:
            continue
        end = start + t.shape[dim]
        mask = within(at[dim], start, end)
        value = read(t, shifted(at, dim, -start), mask)
        parts.append((end, value.cast(call.dtype)))
        start = end
    result = parts[-1][1].node
    for end, value in reversed(parts[:-1]):
        result = select(compare(Op.LT, at[dim], index.index(end)), value.node, result)
    return Expr(result)


@lowering("aten.stack.default")
def stack(call: Call, tensors: Sequence[Ref], dim: int) -> Expr:
    check_operand_count(call, tensors)
    dim = dimension(dim, len(call.shape))
    at = call.at()
    rest = at[:dim] + at[dim + 1 :]
    result: Node | None = None
    for k, t in reversed(list(enumerate(tensors))):
        mask = compare(Op.EQ, at[dim], index.index(k))
        value = read(t, rest, mask).cast(call.dtype).node
        result = (
            value
            if result is None
            else select(compare(Op.LE, at[dim], index.index(k)), value, result)
        )
    assert result is not None
    return Expr(result)


@lowering("aten.constant_pad_nd.default")
def constant_pad_nd(call: Call, x: Ref, pad: Sequence[int], value: Number) -> Expr:
    at = call.at()
    inside = []
    for k in range(len(pad) // 2):
        dim = x.ndim - 1 - k
        at = shifted(at, dim, -pad[2 * k])
        inside.append(within(at[dim], 0, x.shape[dim]))
    fill = const(value, call.dtype)
    if 0 in x.shape:
        return Expr(fill)
    mask = conjunction(*inside)
    if mask.op is Op.CONST:
        return read(x, at) if mask.arg else Expr(fill)
    return Expr(select(mask, read(x, at, mask).node, fill))


@lowering("aten.flip.default")
def flip(call: Call, x: Ref, dims: Sequence[int]) -> Expr:
    at = call.at()
    for d in dims:
        d = dimension(d, x.ndim)
        if x.ndim:
            at[d] = index.sub(index.index(x.shape[d] - 1), at[d])
    return read(x, at)


@lowering("aten.roll.default", if_empty="ask")
def roll(call: Call, x: Ref, shifts: Sequence[int], dims: Sequence[int]) -> Expr:
    if (not dims and x.ndim != 1) or len(shifts) != len(dims or [0]):
        raise Decline
    if any(not -x.ndim <= d < x.ndim for d in dims):
        raise Decline
    at = call.at()
    if 0 in x.shape:
        return read(x, at)
    for by, d in zip(shifts, dims or [0], strict=True):
        d = dimension(d, x.ndim)
        extent = x.shape[d]
        at[d] = index.mod(index.add(at[d], index.index(-by % extent)), extent)
    return read(x, at)


@lowering("aten.repeat.default")
def repeat(call: Call, x: Ref, repeats: Sequence[int]) -> Expr:
    at = call.at()[len(repeats) - x.ndim :]
    return read(x, [index.mod(p, extent) for p, extent in zip(at, x.shape, strict=True)])


@lowering(
    "aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default",
    "aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default",
)  # fmt: skip
def border_pad(call: Call, x: Ref, pad: Sequence[int]) -> Expr:
    at = call.at()
    for k in range(len(pad) // 2):
        dim = x.ndim - 1 - k
        inner, last = index.add(at[dim], index.index(-pad[2 * k])), x.shape[dim] - 1
        if "replication" in call.target:
            at[dim] = clamped(inner, last)
        else:  # |p| mirrors at the front, last - |last - p| at the back
            end = index.index(last)
            at[dim] = index.sub(end, _absolute(index.sub(end, _absolute(inner))))
    return read(x, at)


def _absolute(position: Node) -> Node:
    negative = compare(Op.LT, position, index.index(0))
    return select(negative, index.mul(position, index.index(-1)), position)


@lowering("aten.pixel_shuffle.default")
def pixel_shuffle(call: Call, x: Ref, factor: int) -> Expr:
    *batch, channel, row, column = call.at()
    inner = [index.mod(row, factor), index.mod(column, factor)]
    plane = index.linear([channel, *inner], [factor * factor, factor, 1])
    return read(x, [*batch, plane, index.floordiv(row, factor), index.floordiv(column, factor)])


@lowering("aten.pixel_unshuffle.default")
def pixel_unshuffle(call: Call, x: Ref, factor: int) -> Expr:
    *batch, plane, row, column = call.at()
    inner = index.mod(plane, factor * factor)
    channel = index.floordiv(plane, factor * factor)
    down = index.linear([row, index.floordiv(inner, factor)], [factor, 1])
    right = index.linear([column, index.mod(inner, factor)], [factor, 1])
    return read(x, [*batch, channel, down, right])


@lowering("aten.channel_shuffle.default")
def channel_shuffle(call: Call, x: Ref, groups: int) -> Expr:
    at = call.at()
    each = x.shape[1] // groups
    at[1] = index.linear([index.mod(at[1], groups), index.floordiv(at[1], groups)], [each, 1])
    return read(x, at)


# --- replacing the part of a tensor that a view shows


@lowering("aten.select_scatter.default")
def select_scatter(call: Call, x: Ref, source: Ref, dim: int, position: int) -> Expr:
    dim = dimension(dim, x.ndim)
    if position < 0:
        position += x.shape[dim]
    at = call.at()
    rest = at[:dim] + at[dim + 1 :]
    return _replaced(x, at, compare(Op.EQ, at[dim], index.index(position)), source, rest)


@lowering("aten.slice_scatter.default")
def slice_scatter(
    call: Call, x: Ref, source: Ref, dim: int, start: int | None, end: int | None, step: int
) -> Expr:
    dim = dimension(dim, x.ndim)
    start, end = bounds(start, end, x.shape[dim])
    at = call.at()
    shift = shifted(at, dim, -start)
    inside = [within(at[dim], start, end)]
    if step != 1:
        inside.append(compare(Op.EQ, index.mod(shift[dim], step), index.index(0)))
        shift[dim] = index.floordiv(shift[dim], step)
    return _replaced(x, at, conjunction(*inside), source, shift)


@lowering("aten.as_strided_scatter.default")
def as_strided_scatter(
    call: Call, x: Ref, source: Ref, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> Expr:
    """`x` is contiguous from the start of its memory, and the view shows no element twice
    (special_ops.py)."""
    at = call.at()
    rest = index.sub(index.linear(at, contiguous_strides(x.shape)), index.index(offset or 0))
    inside = [compare(Op.GE, rest, index.index(0))]
    where: list[Node] = [index.index(0)] * len(size)
    for d in sorted((d for d in range(len(size)) if size[d] > 1), key=lambda d: -stride[d]):
        where[d] = index.floordiv(rest, stride[d])
        inside.append(compare(Op.LT, where[d], index.index(size[d])))
        rest = index.mod(rest, stride[d])
    inside.append(compare(Op.EQ, rest, index.index(0)))
    return _replaced(x, at, conjunction(*inside), source, where)


@lowering("aten.diagonal_scatter.default")
def diagonal_scatter(call: Call, x: Ref, source: Ref, offset: int, dim1: int, dim2: int) -> Expr:
    dim1, dim2 = dimension(dim1, x.ndim), dimension(dim2, x.ndim)
    at = call.at()
    row, column = at[dim1], at[dim2]
    on_diagonal = compare(Op.EQ, index.sub(column, row), index.index(offset))
    along = index.add(row, index.index(min(offset, 0)))
    rest = [p for d, p in enumerate(at) if d not in (dim1, dim2)]
    return _replaced(x, at, on_diagonal, source, [*rest, along])


def _replaced(x: Ref, at: Sequence[Node], mask: Node, source: Ref, where: Sequence[Node]) -> Expr:
    if 0 in source.shape:
        return read(x, at)
    if mask.op is Op.CONST:
        return read(source, where) if mask.arg else read(x, at)
    others = read(x, at)
    return Expr(select(mask, read(source, where, mask).cast(others.dtype).node, others.node))
