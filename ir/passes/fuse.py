"""`fuse`: joins many one-store kernels into few kernels that move fewer bytes.

1. Down the graph: each kernel joins the kernels that produce what it loads, if computing the loaded value in
   place costs no more than loading it saves (inline.worthwhile).  A producer that other kernels need too
   keeps its store.
2. Siblings: kernels over the same loops that read the same tensors become one.
3. A value that is still stored only for other kernels is recomputed there, if that reads fewer bytes.
4. Stores that are piecewise along an axis (concatenations) are cut there (split_stores.py).
5. Small copies of inputs over the same loops become one kernel (passes/merge_copies.py).
6. A kernel overwrites a buffer that no later step needs (passes/inplace.py).
7. Scatters check their indices themselves (passes/sink_checks.py).

Before that, operands of library calls get the layouts that the fast kernels of the libraries need
(attention.py, products.py), so that the copies for it are fused, too.

The rewrite rules run before and after, so each store's value is as simple as they can make it.

A store to an input is not merged with stores that read that input, except in elementwise kernels: there,
these stores read the values from before the kernel.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from frameloom.ir import attention, products
from frameloom.ir.elementwise import elementwise
from frameloom.ir.ops import Op
from frameloom.ir.passes.batch import fuse_isomorphic_parts
from frameloom.ir.passes.dependence import Graph, Group
from frameloom.ir.passes.inline import CHEAP_OPS, bytes_of, inline, summary, uses_in, worthwhile
from frameloom.ir.passes.inplace import reuse
from frameloom.ir.passes.merge_copies import merge_copies
from frameloom.ir.passes.sink_checks import sink_checks
from frameloom.ir.passes.split_stores import split
from frameloom.ir.program import Buffer, Check, Kernel, Kind, Program, Step, Store
from frameloom.ir.rewrite import simple_value, simplify
from frameloom.ir.scatter import scatters_alone
from frameloom.ir.substitute import FALSE, loads
from frameloom.ir.symbolic.expr import hint_of

MAX_STORES = 16  # in one kernel
MAX_BUFFERS = 48
# The time to schedule and compile a kernel grows faster than the kernel.  So kernels have a limit, whatever
# the length of the program.
MAX_OPS = 1500
MAX_REDUCTIONS = 24
MAX_LOADS = 16  # in one store; more only if inlining does not multiply them
MAX_NEIGHBOURS = 16  # how many readers of one tensor a kernel is compared with


def fuse(program: Program) -> Program:
    """Returns `program` with fewer, larger kernels."""
    return fuse_isomorphic_parts(program, _fused)


def _fused(program: Program) -> Program:
    merged = _merged(products.prepare(attention.prepare(program)))
    if _has_constants(merged):
        merged = _merged(merged)
    parts = tuple(
        step.with_stores(lambda stores: (part for s in stores for part in split(s)))
        for step in merged.steps
    )
    merged = simplify(replace(merged, steps=parts))
    simplified = attention.simplify_masks(_without_idle_checks(merged))
    return sink_checks(reuse(merge_copies(simplified)))


def _merged(program: Program) -> Program:
    graph = Graph(simplify(program))
    _fuse_producers(graph)
    _fuse_siblings(graph)
    _recompute(graph)
    steps: list[Step] = []
    taken: Counter[str] = Counter()
    for group in graph.ordered():
        if group.step is not None:
            steps.append(group.step)
        elif group.stores:
            origin = tuple(dict.fromkeys(group.origin))
            steps.append(Kernel(_name(group, taken), tuple(group.stores), origin))
    return simplify(replace(program, steps=tuple(steps)))


def _has_constants(program: Program) -> bool:
    """Whether a kernel loads a tensor that turned out to be one constant: then another round may simplify
    more."""
    stores = [s for k in program.kernels for s in k.stores]
    numbers = {s.buffer for s in stores if s.value.op is Op.CONST and s.buffer.kind is Kind.TEMP}
    return bool(numbers) and any(n.arg in numbers for n in loads(s.value for s in stores))


def _without_idle_checks(program: Program) -> Program:
    """Drops the checks of indices that turned out to be in range, with the stores that write their flags."""
    constant = {s.buffer for k in program.kernels for s in k.stores if s.value is FALSE}
    idle = {b for b in constant & program.checked if b.kind is Kind.TEMP}
    if not idle:
        return program
    kept = (
        step.keeping(lambda s: s.buffer not in idle)
        for step in program.steps
        if not isinstance(step, Check) or step.buffer not in idle
    )
    return replace(program, steps=tuple(s for s in kept if s is not None))


# --- 1. producers into consumers


def _fuse_producers(graph: Graph) -> None:
    for number in sorted(graph.groups):
        group = graph.groups.get(number)
        if group is None or not group.stores:
            continue
        producers = {graph.writer[b].number for b in group.reads if b in graph.writer}
        for n in sorted(producers, reverse=True):
            producer = graph.groups.get(n)
            if producer is None or not producer.stores or producer is group:
                continue
            stores = _joined(graph, producer, group)
            if stores is not None:
                graph.merge(producer, group, stores)
                group = producer


def _joined(graph: Graph, producer: Group, consumer: Group) -> list[Store] | None:
    """Returns the stores of both in one kernel, or None if they should stay separate."""
    if _too_large(producer, consumer) or not graph.mergeable(producer, consumer):
        return None
    if producer.scatter is not None:
        return None
    taken = [b for b in consumer.reads if b in producer.values]
    if not graph.mutated.isdisjoint(taken):
        return None
    others = {producer.number, consumer.number}
    for b in taken:
        is_stored = b.kind is not Kind.TEMP or bool(graph.readers[b] - others)
        for s in consumer.stores:
            uses = uses_in(s, [b])
            if uses and not worthwhile(s, uses, producer.values[b], is_stored):
                return None
    values = {b: producer.values[b] for b in taken}
    stores = [
        s
        for s in producer.stores
        if s.buffer.kind is not Kind.TEMP or graph.readers[s.buffer] - others
    ]
    moved = {id(s): _inlined(s, values) for s in [*consumer.stores, *consumer.values.values()]}
    stores += [moved[id(s)] for s in consumer.stores]
    if _multiplies(values, [(s, moved[id(s)]) for s in consumer.stores]):
        return None
    if not _safe(stores) or (consumer.scatter is not None and not scatters_alone(stores)):
        return None
    consumer.values = {b: moved[id(s)] for b, s in consumer.values.items()}
    return stores


def _too_large(a: Group, b: Group) -> bool:
    """Whether one kernel of both would exceed a limit."""
    costs = [summary(s.value) for s in (*a.stores, *b.stores)]
    return (
        len(costs) > MAX_STORES
        or sum(c.ops for c in costs) > MAX_OPS
        or sum(c.n_reductions for c in costs) > MAX_REDUCTIONS
    )


def _multiplies(values: dict[Buffer, Store], pairs: Iterable[tuple[Store, Store]]) -> bool:
    """Whether inlining `values` multiplies loads: a new store (second of a pair) loads from many more places
    than the old store (first) and `values` together.

    In a chain of steps where each one uses the step before at two places, the number doubles with every step.
    """
    own = sum(map(_n_loads, values.values()))
    return any(_n_loads(new) > max(own + _n_loads(old), MAX_LOADS) for old, new in pairs)


def _n_loads(store: Store) -> int:
    return sum(1 for _ in loads([store.value]))


def _inlined(store: Store, values: dict[Buffer, Store]) -> Store:
    return replace(store, offset=inline(store.offset, values), value=inline(store.value, values))


def _safe(stores: Sequence[Store]) -> bool:
    """Whether the stores can share a kernel.  An input that is written may be read only at the element that
    is overwritten: by its own store or, in elementwise kernels, also by others.  There must be few enough
    buffers."""
    written = {s.buffer: s for s in stores if s.buffer.kind is Kind.INPUT}
    touched = {s.buffer for s in stores}
    shared: set[Buffer] = set()
    for s in stores:
        for n in loads([s.value, s.offset]):
            touched.add(n.arg)
            writer = written.get(n.arg)
            if writer is None:
                continue
            if n.srcs[0] is not writer.offset or n.free & s.value.bound:
                return False
            if writer is not s:
                shared.add(n.arg)
                # A store waits for its own loads, whichever thread runs it: so it has to load this element
                # itself.
                if n not in loads([writer.value]):
                    return False
    if shared and not elementwise(stores):
        return False
    for b in shared:  # after simplification the own store may not read it any more
        if all(n.arg != b for n in loads([simple_value(written[b])])):
            return False
    return len(touched) <= MAX_BUFFERS and len(written) == sum(
        s.buffer.kind is Kind.INPUT for s in stores
    )


# --- 2. siblings


def _fuse_siblings(graph: Graph) -> None:
    for buffer in list(graph.readers):
        numbers = sorted(graph.readers[buffer])
        for i, first in enumerate(numbers):
            for second in numbers[i + 1 : i + 1 + MAX_NEIGHBOURS]:
                a, b = graph.groups.get(first), graph.groups.get(second)
                if a is not None and b is not None and _should_fuse_siblings(a, b):
                    _merge_siblings(graph, a, b)


def _merge_siblings(graph: Graph, a: Group, b: Group) -> None:
    if graph.depends(b, a) or graph.depends(a, b):
        earlier, later = (a, b) if graph.depends(b, a) else (b, a)
        stores = _joined(graph, earlier, later)
        if stores is not None:
            graph.merge(earlier, later, stores)
        return
    stores = [*a.stores, *b.stores]
    if not _too_large(a, b) and graph.mergeable(a, b) and _safe(stores):
        graph.merge(a, b, stores)


def _should_fuse_siblings(a: Group, b: Group) -> bool:
    """Whether both run over the same loops, and sharing saves a good part of the reads of the smaller one."""
    if not a.stores or not b.stores or a.scatter is not None or b.scatter is not None:
        return False
    shared = bytes_of(a.reads & b.reads)
    if 2 * shared < min(bytes_of(a.reads), bytes_of(b.reads)):
        return False
    first, second = max(map(_nest, a.stores)), max(map(_nest, b.stores))
    if first != second and not _is_check(a) and not _is_check(b):
        return False
    one, other = (Counter(hint_of(x.extent) for x in max(g.stores, key=_nest).axes) for g in (a, b))
    return one <= other or other <= one


def _is_check(group: Group) -> bool:
    # To check every index once is little work compared with using it.
    return all(
        s.buffer.kind is Kind.TEMP and not s.axes and not s.buffer.shape for s in group.stores
    )


def _nest(store: Store) -> tuple[int, tuple[int, ...]]:
    """Returns the largest loop nest that the store needs: its size and extents."""
    nests = [frozenset(store.axes)]
    nests += [r.free | frozenset(r.arg.axes) for r in summary(store.value).reductions]
    extents = (tuple(sorted(hint_of(a.extent) for a in axes)) for axes in nests)
    return max((math.prod(e), e) for e in extents)


# --- 3. recomputing instead of storing


def _recompute(graph: Graph) -> None:
    for number in sorted(graph.groups, reverse=True):
        group = graph.groups[number]
        for store in list(group.stores):
            if not any(store is s for s in group.stores):
                continue  # not needed any more, since readers compute another value themselves
            if store.buffer.kind is Kind.TEMP and store.buffer not in graph.mutated:
                _try_recompute(graph, group, store)


def _try_recompute(graph: Graph, group: Group, store: Store) -> None:
    cost = summary(store.value)
    if cost.reductions or cost.expensive or cost.ops > CHEAP_OPS:
        return
    readers = [graph.groups[n] for n in graph.readers[store.buffer]]
    if any(not r.stores for r in readers):
        return
    own = bytes_of([store.buffer])
    extra = sum(bytes_of(cost.buffers - r.reads) for r in readers)
    if extra > own * (1 + len(readers)):
        return
    for r in readers:
        for s in r.stores:
            uses = uses_in(s, [store.buffer])
            if uses and not worthwhile(s, uses, store, is_stored=False):
                return
    if readers and any(_is_overwritten(graph, b) for b in cost.buffers):
        return  # a reader might load other values
    values = {store.buffer: store}
    changed = {r.number: [_inlined(s, values) for s in r.stores] for r in readers}
    if not all(_safe(stores) for stores in changed.values()):
        return
    if any(_multiplies(values, zip(r.stores, changed[r.number], strict=True)) for r in readers):
        return
    for r in readers:
        graph.replace_stores(r, changed[r.number])
        r.values = {b: _inlined(s, values) for b, s in r.values.items()}
    graph.replace_stores(group, group.stores)
    if not group.stores:
        graph.forget(group)


def _is_overwritten(graph: Graph, buffer: Buffer) -> bool:
    """Whether the buffer is an input to which some step writes."""
    return buffer.kind is Kind.INPUT and (
        buffer in graph.mutated
        or any(s.buffer == buffer for g in graph.groups.values() for s in g.stores)
    )


# --- names


def _name(group: Group, taken: Counter[str]) -> str:
    """Returns a kernel's name: the ops that it fuses, and a number that makes the name unique."""
    words = list(dict.fromkeys(filter(None, (re.sub(r"_\d+$", "", n) for n in group.names))))
    if len(words) > 5:
        words = [*words[:3], "and", str(len(words) - 4), "more", words[-1]]
    name = "_".join(words) or "kernel"
    taken[name] += 1
    return f"{name}_{taken[name] - 1}"
