"""Inlining: replaces a LOAD of a buffer by the value that another store writes there, at the load's position.

`inline` does it; `worthwhile` says whether a consumer should: nothing expensive may be computed more often
than before, and no reduction may be repeated along an axis that it does not depend on.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from frameloom.ir import index
from frameloom.ir.cases import assumptions
from frameloom.ir.cumulative import own_axes, prefix
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, const
from frameloom.ir.ops import EXPENSIVE, LEAVES, Op
from frameloom.ir.program import Buffer, Store, is_cuda
from frameloom.ir.substitute import loads, masked, select, substitute, topological, transform, walk
from frameloom.ir.symbolic.compare import surely_positive
from frameloom.ir.symbolic.expr import hint_product

CHEAP_OPS = 24  # more arithmetic than this is not repeated if that can be avoided
FEW_OPS = 4  # repeating so little costs less than a load
SLOW = EXPENSIVE | {Op.SQRT, Op.RSQRT}  # in F64: hundreds of instructions
SMALL_SPACE = 4096  # elements; below this a kernel launch costs more than repeated arithmetic


@dataclass(frozen=True)
class Use:
    """One load, and the reductions around it, outermost first."""

    load: Node
    around: tuple[Node, ...]


@dataclass(frozen=True)
class Summary:
    """The cost of computing a value, per element."""

    ops: int  # scalar operations, without index arithmetic
    expensive: bool  # has transcendental functions or random numbers
    slow: bool  # has transcendental functions, random numbers or roots in F64
    reductions: tuple[Node, ...]  # the outermost ones
    n_reductions: int  # the number of all reductions
    expensive_axes: frozenset[frozenset[Axis]]  # free axes of expensive ops
    buffers: frozenset[Buffer]


_SUMMARIES: weakref.WeakKeyDictionary[Node, Summary] = weakref.WeakKeyDictionary()


def summary(value: Node) -> Summary:
    """Returns the cost of computing `value` (cached per node)."""
    cost = _SUMMARIES.get(value)
    if cost is None:
        nodes = topological([value])
        arithmetic = [
            n for n in nodes if n.op not in LEAVES and n.op is not Op.LOAD and not _is_index(n)
        ]
        cost = Summary(
            len(arithmetic),
            any(n.op in EXPENSIVE for n in arithmetic),
            any(n.dtype is DType.F64 and n.op in SLOW for n in arithmetic),
            tuple(outermost_reductions(value)),
            sum(n.op is Op.REDUCE for n in nodes),
            frozenset(n.free for n in arithmetic if n.op in EXPENSIVE and n.free <= value.free),
            frozenset(n.arg for n in loads([value])),
        )
        _SUMMARIES[value] = cost
    return cost


def _is_index(n: Node) -> bool:
    return n.dtype is DType.I64 and n.op in (Op.ADD, Op.MUL, Op.FLOORDIV, Op.MOD)


def outermost_reductions(value: Node) -> list[Node]:
    """Returns the REDUCEs in `value` that are inside no other."""
    below = walk([value], lambda n: n.bound and n.op is not Op.REDUCE)
    return [n for n in below if n.op is Op.REDUCE]


def uses_in(store: Store, of: Iterable[Buffer]) -> list[Use]:
    """Returns the loads of some buffers in a store's value and offset."""
    wanted = set(of)
    uses: dict[Use, None] = {}
    seen: set[tuple[Node, tuple[Node, ...]]] = set()
    stack: list[tuple[Node, tuple[Node, ...]]] = [(store.offset, ()), (store.value, ())]
    while stack:
        n, around = stack.pop()
        if n.op in LEAVES or (n, around) in seen:
            continue
        seen.add((n, around))
        if n.op is Op.LOAD and n.arg in wanted:
            uses[Use(n, around)] = None
        if n.op is Op.REDUCE:
            around = (*_needed(around, n), n)
        stack.extend((s, around) for s in n.srcs)
    return list(uses)


def _needed(around: Sequence[Node], inner: Node) -> tuple[Node, ...]:
    """Returns the reductions inside which `inner` has to run; it is computed before the others."""
    needed: list[Node] = []
    free = inner.free
    for r in reversed(around):
        if not free.isdisjoint(r.arg.axes):
            needed.append(r)
            free |= r.free
    return tuple(reversed(needed))


# --- doing it


def inline(root: Node, values: Mapping[Buffer, Store]) -> Node:
    """Returns `root` with the loads of `values` replaced by the stored values."""

    def visit(n: Node) -> Node | None:
        if n.op is not Op.LOAD or n.arg not in values:
            return None
        producer = values[n.arg]
        at = positions(n, producer)
        assert at is not None, f"{n.arg} cannot be inlined"
        value = substitute(producer.value, at)
        if len(n.srcs) == 1:
            return value
        mask = n.srcs[1]
        unsafe = _unsafe(at)
        return select(mask, masked(value, mask, unsafe) if unsafe else value, const(0, value.dtype))

    return transform([root], visit)[0]


def positions(load: Node, producer: Store) -> dict[Axis, Node] | None:
    """Returns the position in the producer's space where the loaded element is computed; None if it is not
    known."""
    ranges = assumptions(load.srcs[1]) if len(load.srcs) == 2 else None
    return index.positions_of(load.srcs[0], producer.offset, producer.axes, ranges)


def _unsafe(at: Mapping[Axis, Node]) -> frozenset[Axis]:
    """Returns the axes on which a position may leave the producer's space (the load is masked there)."""
    unsafe: frozenset[Axis] = frozenset()
    for a, n in at.items():
        span = index.bounds(n)
        if (
            span is None
            or not surely_positive(span[0] + 1)
            or not surely_positive(a.extent - span[1])
        ):
            unsafe |= n.free
    return unsafe


# --- deciding


def worthwhile(consumer: Store, uses: Sequence[Use], producer: Store, is_stored: bool) -> bool:
    """Whether `consumer` should compute the producer's value at `uses` instead of loading it.

    `is_stored`: the producer's store stays, because other steps need the buffer: then loading costs only a
    read.
    """
    cost = summary(producer.value)
    size = _extent(producer.axes)
    alone = size == 1 and not cost.reductions and is_cuda(producer.buffer.device)
    if cost.slow and alone and _extent(consumer.axes) > 1:
        # Every thread would compute it.  This holds also for a small consumer: it may be the template of
        # larger ones (passes/batch.py).
        return False
    evaluations = 0
    for use in uses:
        at = positions(use.load, producer)
        if at is None or (_is_cumulative(cost) and not _fits_scan_loop(use, at)):
            return False
        needs: frozenset[Axis] = frozenset()
        for r in cost.reductions:
            own = _axes_of_reduction(r, at, use)
            if not _is_not_repeated(r, own, use):
                return False
            needs |= own
        order = _order(consumer, use)
        times = _n_evaluations(order, needs, _moved(producer.value.free, at))
        if times > size or not _aligned(at):
            evaluations += times
        # Functions of only some of the axes must stay in the outer loops if the producer computes them there.
        first = frozenset().union(*(r.free for r in cost.reductions))
        for axes in cost.expensive_axes:
            if _n_evaluations(order, needs, _moved(axes, at)) > max(
                _n_evaluations(producer.axes, first, axes), SMALL_SPACE
            ):
                return False
    if evaluations == 0:
        return True
    if cost.reductions or cost.expensive or cost.ops > CHEAP_OPS:
        return evaluations <= size and not is_stored
    if is_stored and bytes_of(cost.buffers) > bytes_of([producer.buffer]):
        return False
    return evaluations <= size or cost.ops <= FEW_OPS or evaluations <= SMALL_SPACE


def _is_cumulative(cost: Summary) -> bool:
    nodes = topological(cost.reductions)
    return any(n.op is Op.REDUCE and prefix(n) is not None for n in nodes)


def _fits_scan_loop(use: Use, at: Mapping[Axis, Node]) -> bool:
    """Whether the use of a cumulative reduction can be part of the loop that computes it.  With masked loads,
    each position would need another reduction.  On the CPU, reductions up to a limit other than the own
    position are stored anyway."""
    if len(use.load.srcs) == 2 and _unsafe(at):
        return False
    return is_cuda(use.load.arg.device) or (not use.around and _aligned(at))


def _order(consumer: Store, use: Use) -> list[Axis]:
    """Returns the axes of the loops around a use, outermost first."""
    if not use.around:
        return list(consumer.axes)
    outer = own_axes(use.around[0])
    order = [a for a in consumer.axes if a in outer]
    order += sorted(outer.difference(order), key=lambda a: a.name)
    return order + [a for r in use.around for a in r.arg.axes]


def _n_evaluations(order: Sequence[Axis], first: frozenset[Axis], wanted: frozenset[Axis]) -> int:
    """Returns how often these loops compute a value that depends on `wanted`.  A value that outer loops
    determine is computed there, and the axes that reductions need (`first`) are outermost."""
    loops = sorted(order, key=lambda a: a not in first)
    while loops and loops[-1] not in wanted:
        loops.pop()
    return _extent(loops)


def _moved(axes: Iterable[Axis], at: Mapping[Axis, Node]) -> frozenset[Axis]:
    """Returns the consumer's axes that correspond to the producer's."""
    return frozenset().union(*(at[a].free for a in axes))


def _aligned(at: Mapping[Axis, Node]) -> bool:
    """Whether every axis of the producer is a different axis of the consumer."""
    given = [n for n in at.values() if n.op is not Op.CONST]
    return (
        len(given) == len(at)
        and all(n.op is Op.AXIS for n in given)
        and len(set(given)) == len(given)
    )


def _axes_of_reduction(reduction: Node, at: Mapping[Axis, Node], use: Use) -> frozenset[Axis]:
    """Returns the axes that the reduction depends on at the use."""
    own = _moved(reduction.free, at)
    if len(use.load.srcs) == 2 and not own.isdisjoint(_unsafe(at)):
        own |= use.load.srcs[1].free
    return own


def _is_not_repeated(reduction: Node, needs: frozenset[Axis], use: Use) -> bool:
    """Whether the reduction, moved to the use, is computed no more often than in the producer."""
    if _extent(needs) > _extent(reduction.free):
        return False
    # If it needs an axis that a reduction around it binds, it runs in all loops around that one.
    loops: frozenset[Axis] = frozenset()
    for k, r in enumerate(use.around):
        loops |= frozenset(r.arg.axes) | (r.free if k == 0 else frozenset())
        if needs & frozenset(r.arg.axes) and not loops <= needs:
            return False
    return True


def _extent(axes: Iterable[Axis]) -> int:
    return hint_product(a.extent for a in axes)


def bytes_of(buffers: Iterable[Buffer]) -> int:
    """Returns the number of bytes of the buffers' elements."""
    return sum(hint_product(b.shape) * (8 if b.dtype is None else b.dtype.bytes) for b in buffers)
