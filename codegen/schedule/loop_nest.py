"""The loop tree: a kernel after scheduling, before code generation.

    Block = list of Pass | Assign | Accumulate, run in order
    Pass  = loop nest over `axes` (outermost first) around a Block

Values are still nodes. The writer computes each value where all its operands are known, so the tree does not
say where a value is hoisted to. A `Fold` exists from before the `Pass` that lists it until after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer
from frameloom.ir.substitute import walk
from frameloom.ir.symbolic.expr import Int

TRANSPOSE_BLOCK = 64  # positions across the lanes in one block of transpose tiles


@dataclass(eq=False, slots=True)
class Fold:
    """The reduction `node`, accumulated from `value` (its source, with the loop's names for the reduced
    axes). `axes` are those names, in the order of `node.arg.axes`; argmax and argmin count positions in this
    order."""

    node: Node
    value: Node
    axes: tuple[Axis, ...]


@dataclass(eq=False, slots=True)
class Assign:
    """buffer[offset] = value. `scatter`: the kind of scatter, or None. `checks`: pairs of a BOOL buffer and a
    condition that must be false. They are tested before the store; the first that is true sets its buffer and
    ends the kernel."""

    buffer: Buffer
    offset: Node
    value: Node
    scatter: str | None = None
    checks: tuple[tuple[Buffer, Node], ...] = ()


@dataclass(eq=False, slots=True)
class Accumulate:
    fold: Fold


@dataclass(eq=False, slots=True)
class RowBuffer:
    """A row buffer: one element per position of `axes`, private to one run of the block that owns it."""

    node: Node
    axes: tuple[Axis, ...]


@dataclass(eq=False, slots=True)
class Transposed:
    """Loads that are contiguous along `axis` instead of the lane axis. The loop nest iterates over `block`,
    the number of a group of positions of `axis`. In each group it reads squares (as many positions as lanes)
    from every one of `loads`, transposes them into a tile, and loops over the positions."""

    axis: Axis
    block: Axis
    loads: list[Node]
    span: int  # lane positions of one tile


@dataclass(frozen=True, slots=True)
class Blocked:
    """An axis cut into blocks of the positions of `within`. All blocks together have `extent` positions, so
    the last block may have fewer than the others."""

    blocks: Axis
    within: Axis
    extent: Int


@dataclass(eq=False, slots=True)
class Pass:
    """A loop nest. `vector` is None or the last of `axes`; its positions are then vector lanes in everything
    inside.

    `scan`: inside the loop, a fold's value is its running value so far. `parallel`: threads run the loop
    nest. `split` leading axes form one range of work items; the vector axis joins it in blocks of `block`
    positions, if `block` is not 0. With folds, the range is cut into a fixed number of chunks that are
    combined in order, for any number of threads.
    """

    axes: tuple[Axis, ...]
    body: list[Pass | Assign | Accumulate]
    folds: list[Fold] = field(default_factory=list)
    vector: Axis | None = None
    lanes: int = 1
    unroll: int = 1
    parallel: bool = False
    split: int = 0
    block: int = 0
    enough: tuple[Int, int] | None = None  # parallel only if the first is at least the second
    transposed: Transposed | None = None
    scan: bool = False
    strip: int = 0  # lane positions whose accumulators the inner loop nests keep in the cache
    blocked: Blocked | None = None
    keeps: list[RowBuffer] = field(default_factory=list)  # row buffers that this loop nest writes
    reads: list[RowBuffer] = field(
        default_factory=list
    )  # row buffers that it reads instead of computing the node


def is_blocked(p: Pass, a: Axis) -> bool:
    """Whether `a` may have fewer positions than its extent says (in the last block)."""
    return p.blocked is not None and p.blocked.within == a


@dataclass(eq=False, slots=True)
class Tree:
    """A whole kernel. `buffers`: in the order of the function's first argument; `scratch`: allocated for one
    call."""

    body: list[Pass | Assign | Accumulate]
    buffers: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...] = ()


Item = Pass | Assign | Accumulate


def items(body: Sequence[Item]) -> Iterator[Assign | Accumulate]:
    for item in body:
        if isinstance(item, Pass):
            yield from items(item.body)
        else:
            yield item


def passes(body: Sequence[Item]) -> Iterator[Pass]:
    """Yields the loop nests inside, outer ones first."""
    for item in body:
        if isinstance(item, Pass):
            yield item
            yield from passes(item.body)


def nodes(body: Sequence[Item]) -> list[Node]:
    """Returns every node computed inside; finished reductions count as leaves."""
    roots: list[Node] = []
    for item in items(body):
        if isinstance(item, Assign):
            roots += (item.offset, item.value)
        else:
            roots.append(item.fold.value)
    return list(walk(roots, lambda n: n.op is not Op.REDUCE))


def accesses(body: Sequence[Item]) -> list[tuple[Node, int]]:
    """Returns (offset, bytes) of each load and store inside."""
    memory_ops = [(n.srcs[0], n.arg.dtype.bytes) for n in nodes(body) if n.op is Op.LOAD]
    for item in items(body):
        if isinstance(item, Assign):
            memory_ops.append((item.offset, 2 * item.buffer.dtype.bytes))
    return memory_ops
