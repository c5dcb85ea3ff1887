"""Random numbers in a Triton text: the words of Philox for the elements of a tile (ir/philox.py).

If neighbours in the tile use words of one block, the block is drawn once for them. For this there are
positions that count such groups of neighbours; the words of a group are then interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frameloom.codegen.schedule.layout import stride
from frameloom.codegen.schedule.tile_gpu import Dimension
from frameloom.codegen.triton.ops import full
from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.index import terms_of
from frameloom.ir.node import Axis, Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.philox import WORDS
from frameloom.ir.substitute import substitute

if TYPE_CHECKING:
    from frameloom.codegen.triton.function import Writer
    from frameloom.codegen.triton.scope import Scope


@dataclass(frozen=True)
class _Place:
    """Where the numbers of a RANDOM come from, and how many neighbours share a block, or two blocks (1:
    none)."""

    blocks: Node
    thread: Node
    word: Node
    group: int


def operands_of(writer: Writer, n: Node) -> list[Node]:
    """Returns seed, offset, blocks after the offset, stream and word."""
    place = _place(writer, n)
    return [*n.srcs[:2], place.blocks, place.thread, place.word]


def random_number(writer: Writer, n: Node, scope: Scope) -> str:
    """Returns the expression of a RANDOM whose operands are defined; a line of its own draws its block."""
    place = _place(writer, n)
    texts = []
    for s in (*n.srcs[:2], place.blocks, place.thread, place.word):
        value = writer.value(s)
        texts.append(full(s.arg, DType.I32) if value.literal else value.text)
    *block, word = texts
    a, b, c, d = words = _drawn(writer, block, scope)
    if place.group >= WORDS:
        if place.group > WORDS:
            block[2] = f"{block[2]} + 1"
            pairs = zip(words, _drawn(writer, block, scope), strict=True)
            a, b, c, d = (f"tl.interleave({x}, {y})" for x, y in pairs)
        bits = f"tl.interleave(tl.interleave({a}, {c}), tl.interleave({b}, {d}))"
    elif place.group == 2:
        bits = f"tl.interleave({a}, {b})"
    elif place.word.op is Op.CONST:
        bits = words[place.word.arg]
    else:
        first, second = f"tl.where({word} == 0, {a}, {b})", f"tl.where({word} == 2, {c}, {d})"
        bits = f"tl.where({word} < 2, {first}, {second})"
    if n.dtype is DType.F32:
        return f"{writer.helper('_uniform')}({bits})"
    return f"({bits}).to(tl.int32, bitcast=True)"


def _drawn(writer: Writer, block: list[str], scope: Scope) -> list[str]:
    """Writes the line that draws a block, and returns the names of its words."""
    words = [writer.fresh("w") for _ in range(WORDS)]
    writer.line(f"{', '.join(words)} = {writer.helper('_philox')}({', '.join(block)})", scope)
    return words


def _place(writer: Writer, n: Node) -> _Place:
    blocks, thread, word = n.arg.place(n.srcs[2], index)
    return _shared(writer, n) or _Place(blocks, thread, word, 1)


def _shared(writer: Writer, n: Node) -> _Place | None:
    """Returns the place of the first of every group of neighbours along the tile's last dimension, if a group
    shares a block; else None."""
    group, position = n.arg.width, n.srcs[2]
    if group == 1 or group > 2 * WORDS or not writer.tile:
        return None
    d = writer.tile[-1]
    if d.block % group or (writer.aligned is not None and d is writer.launch.inner):
        return None
    *others, fast = d.axes
    along = stride(position, fast)
    if along is None or along[0] != 1 or (others and fast.extent % group):
        return None
    terms, constant = terms_of(along[1])
    if constant % group or any(factor % group for factor in terms.values()):
        return None
    groups = _groups(writer, d, group)
    *theirs, last = map(axis, groups.axes)
    mapping = {**dict(zip(others, theirs, strict=True)), fast: index.mul(last, group)}
    blocks, thread, word = n.arg.place(substitute(position, mapping), index)
    if word is not index.index(0) or groups.axes[-1] not in thread.free:
        return None
    return _Place(blocks, thread, word, group)


def _groups(writer: Writer, d: Dimension, group: int) -> Dimension:
    """Returns the dimension whose positions are the groups along `d`; defines it in the scope of `d`."""
    scope = writer.scope(frozenset((d.name,)))
    cached = scope.groups.get((d.name, group))
    if cached is not None:
        return cached
    name = writer.fresh(f"{d.name}_by")
    *others, fast = d.axes
    axes = [Axis(f"{name}_{a.name}", a.extent) for a in others]
    axes.append(Axis(f"{name}_{fast.name}", -(-fast.extent // group)))
    dimension = Dimension(name, tuple(axes), d.block // group)
    writer.dims.append(dimension)
    writer.names[name] = name
    # For loops, it counts as the same dimension.
    writer.of_axis.update(dict.fromkeys(axes, d.name))
    start = writer.starts[d.name]
    text = f"{start} // {group} + tl.arange(0, {dimension.block})"
    writer.line(f"{name} = {writer.spread(text, d)}", scope)
    scope.groups[d.name, group] = dimension
    return dimension
