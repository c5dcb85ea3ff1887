"""The loop tree: a kernel after scheduling, before it is text.

    Block = list of Pass | Assign | Accumulate, run in order
    Pass  = loops over `axes` (outermost first) around a Block

Values are still nodes: the writer computes each where all that it depends on is known, so nothing here says
where a value is hoisted to.  A `Fold` lives from before the pass that lists it until after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer
from frameloom.ir.symbolic.expr import Int

SQUARES = 64  # positions across the lanes in one block of transposed squares


@dataclass(eq=False, slots=True)
class Fold:
    """The reduction `node`, accumulated from `value` (its source with the loop's names for the bound axes).  `axes` are
    those names, in the order of `node.arg.axes`; argmax and argmin count positions by them."""

    node: Node
    value: Node
    axes: tuple[Axis, ...]
    accurate: bool = True  # a long float sum: partial sums of bounded length


@dataclass(eq=False, slots=True)
class Assign:
    """buffer[offset] = value; `scatter`: the kind of the scatter that it is; before, the first of `checks` (BOOL buffer, what must
    not hold) that fails sets its buffer and ends the kernel."""

    buffer: Buffer
    offset: Node
    value: Node
    scatter: str | None = None
    checks: tuple[tuple[Buffer, Node], ...] = ()


@dataclass(eq=False, slots=True)
class Accumulate:
    fold: Fold


@dataclass(eq=False, slots=True)
class Row:
    """Scratch of one element per position of `axes`, private to one run of the block that owns it."""

    node: Node
    axes: tuple[Axis, ...]


@dataclass(eq=False, slots=True)
class Transposed:
    """Loads that are contiguous along `axis` instead of the lane axis.  The pass loops over `block`, the number of a
    group of positions of `axis`; in each it reads squares of lanes by as many positions from every one of `loads`,
    transposes them into a tile, and loops over the positions."""

    axis: Axis
    block: Axis
    loads: list[Node]
    span: int  # lane positions of one tile


@dataclass(frozen=True, slots=True)
class Blocked:
    """Positions of `within` are taken block by block; all blocks together have `extent`, so that the last may have fewer."""

    blocks: Axis
    within: Axis
    extent: Int


@dataclass(eq=False, slots=True)
class Pass:
    """`vector` is None or the last of `axes`, whose positions are then lanes in everything inside.

    `scan`: what its folds have come to so far is their value inside.  `parallel`: run by the thread pool: `split` leading axes form one range of work items (the vector axis joins it in
    blocks of `block` positions, if not 0).  With folds, the range is cut into a fixed number of chunks that are
    combined in order, whatever the number of threads.
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
    enough: tuple[Int, int] | None = None  # parallel only where the first is at least the second
    transposed: Transposed | None = None
    scan: bool = False
    strip: int = 0  # lane positions whose accumulators the passes inside keep in the cache (cpp/accumulator_strips.py)
    blocked: Blocked | None = None
    keeps: list[Row] = field(default_factory=list)  # rows that this pass writes
    reads: list[Row] = field(
        default_factory=list
    )  # rows that it reads instead of computing the node


def is_blocked(p: Pass, a: Axis) -> bool:
    """Whether there may be fewer positions of `a` than it says."""
    return p.blocked is not None and p.blocked.within == a


@dataclass(eq=False, slots=True)
class Tree:
    """A whole kernel; `buffers` in the order of the function's first argument, `scratch` for the time of a call."""

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
    """The passes inside, outer ones first."""
    for item in body:
        if isinstance(item, Pass):
            yield item
            yield from passes(item.body)


def nodes(body: Sequence[Item]) -> list[Node]:
    """Every node computed inside; finished reductions count as leaves."""
    seen: dict[Node, None] = {}
    stack: list[Node] = []
    for item in items(body):
        if isinstance(item, Assign):
            stack += (item.offset, item.value)
        else:
            stack.append(item.fold.value)
    while stack:
        n = stack.pop()
        if n not in seen:
            seen[n] = None
            if n.op is not Op.REDUCE:
                stack.extend(n.srcs)
    return list(seen)


def accesses(body: Sequence[Item]) -> list[tuple[Node, int]]:
    """(offset, bytes) of each load and store inside."""
    found = [(n.srcs[0], n.arg.dtype.bytes) for n in nodes(body) if n.op is Op.LOAD]
    for item in items(body):
        if isinstance(item, Assign):
            found.append((item.offset, 2 * item.buffer.dtype.bytes))
    return found
