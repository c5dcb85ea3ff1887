"""Cuts the kernels for a GPU until one launch can run each of them.

A launch has blocks of positions of its *outer* axes and, inside each, at most one loop over its *inner* axes.
All reductions of a launch reduce the inner axes and depend on the outer ones; its stores go over the outer
axes, or over both. A kernel without this form is cut: an earlier launch stores the reduction that does not
fit to a buffer of its own, and the rest loads it. A long reduction with few results, which would use only a
part of the GPU, is first reduced in chunks (split_reduction.py).

The semantics stay those of the loop IR: `partition` takes a Program and returns one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from frameloom.codegen.schedule.cost import count
from frameloom.codegen.schedule.layout import dense, place_in
from frameloom.codegen.schedule.split_axes import split
from frameloom.codegen.schedule.split_reduction import chunks, ordered, reductions, split_reductions
from frameloom.codegen.structure import structure
from frameloom.codegen.triton.chip import Chip
from frameloom.ir.cumulative import at, own_axes, prefix
from frameloom.ir.index import linear
from frameloom.ir.node import Axis, Node, axis, index, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Step, Store, is_cuda
from frameloom.ir.scatter import is_scatter
from frameloom.ir.substitute import fold, loads, space, substitute, transform, without_reductions
from frameloom.ir.symbolic.expr import Int, may_exceed_1

MANY = 1000  # stores of one kernel; more means that cutting does not end
BORDER = 1 / 3  # of an axis; a shorter part, such as the border of a window, uses a mask instead

# A value, and the extents of the axes that it is stored over.
Canonical = tuple[Node, tuple[Int, ...]]


def partition(program: Program, chip_of: Callable[[str], Chip]) -> Program:
    """Returns `program` with its CUDA kernels cut into launches. `chip_of` returns the chip of a device."""
    steps: list[Step] = []
    cached: dict[Hashable, tuple[Kernel, tuple[Buffer, ...], list[Kernel]]] = {}
    for step in program.steps:
        if not isinstance(step, Kernel) or not is_cuda(step.device):
            steps.append(step)
            continue
        key, buffers = structure(step)
        key = key, tuple(replace(b, name="").identity for b in buffers)
        if key in cached:
            like, like_buffers, like_launches = cached[key]
            names = dict(zip(like_buffers, buffers, strict=True))
            steps += _renamed(step, names, like, like_launches)
            continue
        cut_kernels = launches(step, chip_of(step.device))
        cached[key] = (step, buffers, cut_kernels)
        steps += cut_kernels
    return replace(program, steps=tuple(steps))


def _renamed(
    kernel: Kernel, names: dict[Buffer, Buffer], like: Kernel, like_launches: Sequence[Kernel]
) -> list[Kernel]:
    """Returns the launches of `kernel`, renamed from those of `like`, which differs only in names."""

    def own(name: str) -> str:
        return kernel.name + name.removeprefix(like.name)

    for b in (b for k in like_launches for b in k.writes):
        names.setdefault(b, replace(b, name=own(b.name)))  # a part
    return [
        replace(k.renamed(names), name=own(k.name), origin=kernel.origin) for k in like_launches
    ]


def launches(kernel: Kernel, chip: Chip) -> list[Kernel]:
    """Returns kernels that do what `kernel` does, in order, each of the form above."""
    if is_scatter(kernel):
        return [replace(kernel, stores=tuple(map(without_unit_axes, kernel.stores)))]
    cutter = _Cutter(kernel, chip)
    for store in split(kernel.stores, BORDER):
        cutter.add(without_unit_axes(store))
    groups = _grouped(cutter.stores)
    names = (
        [kernel.name] if len(groups) == 1 else [f"{kernel.name}_{i}" for i in range(len(groups))]
    )
    return [
        Kernel(name, tuple(g.stores), kernel.origin) for name, g in zip(names, groups, strict=True)
    ]


def without_unit_axes(store: Store) -> Store:
    """Returns `store` without loops of one position."""

    def visit(n: Node) -> Node | None:
        if n.op is not Op.REDUCE or all(may_exceed_1(a.extent) for a in n.arg.axes):
            return None
        remaining = tuple(a for a in n.arg.axes if may_exceed_1(a.extent))
        value = substitute(n.srcs[0], {a: index(0) for a in n.arg.axes if a not in remaining})
        if remaining:
            return fold(n.arg.kind, remaining, value)
        return index(0) if n.arg.row.position else value

    offset, value = transform((store.offset, store.value), visit, without_reductions)
    units = {a: index(0) for a in store.axes if not may_exceed_1(a.extent)}
    offset, value = substitute(offset, units), substitute(value, units)
    axes = tuple(a for a in store.axes if may_exceed_1(a.extent))
    return replace(store, offset=offset, value=value, axes=axes)


@dataclass
class IterationDomain:
    """Outer and inner axes of a store of a launch. `inner` is empty if there is no reduction."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]

    @property
    def extents(self) -> tuple[tuple[Int, ...], tuple[Int, ...]]:
        return tuple(a.extent for a in self.outer), tuple(a.extent for a in self.inner)


def iteration_domain(store: Store) -> IterationDomain | None:
    """Returns the iteration domain of `store`; None if a launch cannot have it."""
    reduce_nodes = reductions((store.offset, store.value))
    if not reduce_nodes:
        return IterationDomain(store.axes, ())
    main = max(reduce_nodes, key=lambda r: count(own_axes(r)) * count(r.arg.axes))
    outer = tuple(a for a in store.axes if a in own_axes(main))
    inner = main.arg.axes
    rest = tuple(a for a in store.axes if a not in own_axes(main))
    if len(outer) != len(own_axes(main)):
        return None  # below a reduction that is cut later
    if rest and [a.extent for a in rest] != [a.extent for a in inner]:
        return None
    for r in reduce_nodes:
        if not fits(r, outer, inner, rest):
            return None
    return IterationDomain(outer, rest or inner)


def fits(r: Node, outer: Sequence[Axis], inner: Sequence[Axis], rest: Sequence[Axis]) -> bool:
    """Whether the reduction is over the inner axes. `rest`: the axes of the store that correspond to them."""
    if own_axes(r) != frozenset(outer):
        return False
    if own_axes(r) != r.free and r.free - own_axes(r) != frozenset(rest):
        return False
    return [a.extent for a in r.arg.axes] == [a.extent for a in inner]


class _Cutter:
    """Collects stores in an order in which each loads only what earlier ones have stored."""

    def __init__(self, kernel: Kernel, chip: Chip) -> None:
        self.kernel = kernel
        self.chip = chip
        self.device = kernel.stores[0].buffer.device
        self.stores: list[Store] = []
        self._buffer_of: dict[Canonical, Buffer] = {}
        # How many places use the same reduction, each along axes of its own.
        self._uses = Counter(
            _canonical(r, ordered(r.free, s.axes))
            for s in kernel.stores
            for r in reductions((s.offset, s.value))
        )

    def add(self, store: Store) -> None:
        """Appends `store`, after the stores that it is cut into."""
        assert len(self.stores) < MANY, "a kernel is cut without end"
        store = self._reused(self._flat(self._cumulative(store)))
        store = split_reductions(store, self.chip, self._materialise)
        self.stores.append(self._fitting(store))

    def _cumulative(self, store: Store) -> Store:
        """Replaces cumulative reductions by loads of all their results, unless they end at a position of the
        store."""

        def visit(n: Node) -> Node | None:
            scan = prefix(n) if n.op is Op.REDUCE else None
            if scan is None or scan.along in store.axes:
                return None
            along = Axis(f"{scan.k.name}_to", scan.k.extent)
            outside = sorted(scan.value.free - {scan.k}, key=lambda a: a.name)
            read = self._materialise(scan.up_to(axis(along)), (*outside, along))
            return at(scan, read, along)

        return store.transformed(visit, without_reductions)

    def _flat(self, store: Store) -> Store:
        """Ensures that no reduction depends on an axis that an enclosing reduction reduces."""

        def visit(n: Node) -> Node | None:
            if n.op is not Op.REDUCE:
                return None
            if not (needed := _dependent_axes(n)):
                return None
            if (scan := prefix(n)) is not None:
                axes = sorted(scan.value.free, key=lambda a: a.name)
                return replace(scan, value=self._materialise(scan.value, axes)).up_to(scan.limit)
            while (common := self._common(n, store)) is not None:
                n = fold(n.arg.kind, n.arg.axes, common)
                if n.op is not Op.REDUCE or not (needed := _dependent_axes(n)):
                    return n
            first = tuple(a for a in n.arg.axes if a in needed)
            rest = tuple(a for a in n.arg.axes if a not in needed)
            source = n.srcs[0]
            if rest and not n.arg.row.position:
                source = fold(n.arg.kind, rest, source)
            else:
                first = n.arg.axes
            outside = ordered(n.free, store.axes)
            return fold(n.arg.kind, first, self._materialise(source, (*outside, *first)))

        return store.transformed(visit, without_reductions)

    def _common(self, n: Node, store: Store) -> Node | None:
        """Returns the source of the reduction `n` in which an inner reduction that other places need, too
        (such as a matrix product), is replaced by a load; None if there is none."""
        own = frozenset(n.arg.axes)
        for r in reductions(n.srcs):
            if own <= r.free:
                axes = (*ordered(r.free - own, store.axes), *n.arg.axes)
                if self._uses[_canonical(r, axes)] > 1:
                    read = self._materialise(r, axes)
                    return transform(n.srcs, {r: read}.get, without_reductions)[0]
        return None

    def _reused(self, store: Store) -> Store:
        """Replaces reductions that an earlier store has computed by loads. Reductions nested in others stay:
        together with the outer one they may have a shorter form (split_reduction.py)."""
        stack, replaced = [store.offset, store.value], {}
        seen: set[Node] = set()
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            if not n.bound:
                continue
            if n.op is not Op.REDUCE:
                stack.extend(n.srcs)
                continue
            axes = ordered(n.free, store.axes)
            buffer = self._buffer_of.get(_canonical(n, axes))
            if len(axes) == len(store.axes) and chunks(n, self.chip) > 1:
                continue  # combining the chunks' results again joins the launch that does it
            if buffer is not None and buffer != store.buffer:
                replaced[n] = load(buffer, linear(map(axis, axes), buffer.strides))
        if not replaced:
            return store
        return store.transformed(
            replaced.get, lambda n: not n.bound or (n.op is Op.REDUCE and n not in replaced)
        )

    def _fitting(self, store: Store) -> Store:
        """Replaces reductions that do not fit the iteration domain of the store by loads."""
        while iteration_domain(store) is None:
            reduce_nodes = reductions((store.offset, store.value))
            main = max(
                reduce_nodes,
                key=lambda r: (count(own_axes(r)) * count(r.arg.axes), len(own_axes(r))),
            )
            rest = [a for a in store.axes if a not in own_axes(main)]
            extents = [a.extent for a in rest]
            whole = not rest or extents == [a.extent for a in main.arg.axes]
            outer = tuple(a for a in store.axes if a in own_axes(main))
            misfit = next(
                r for r in reduce_nodes if not whole or not fits(r, outer, main.arg.axes, rest)
            )
            # A separate store of this reduction would be cut in the same place again.
            misfit = next(iter(reductions(misfit.srcs)), misfit)
            free = tuple(a for a in store.axes if a in misfit.free)
            read = self._materialise(misfit, free)
            store = store.transformed({misfit: read}.get, without_reductions)
        return store

    def _materialise(self, value: Node, axes: Sequence[Axis]) -> Node:
        """Returns a load of `value`, which an earlier store of its own computes over `axes`."""
        own, canonical = space([a.extent for a in axes]), _canonical(value, axes)
        buffer = self._buffer_of.get(canonical)
        if buffer is None:
            name = f"{self.kernel.name}_part{len(self._buffer_of)}"
            buffer = self._buffer_of[canonical] = dense(name, value.dtype, own, self.device)
            self.add(Store(buffer, place_in(own), canonical[0], own))
        return load(buffer, place_in(axes))


def _dependent_axes(n: Node) -> frozenset[Axis]:
    """Returns the axes of the reduction that a reduction inside it depends on."""
    own = frozenset(n.arg.axes)
    return frozenset().union(*(r.free & own for r in reductions(n.srcs)))


def _canonical(value: Node, axes: Sequence[Axis]) -> Canonical:
    """Returns `value` with the names for `axes` that its store would give them, and their extents. The
    extents are needed, because a value may not depend on all axes."""
    own = space([a.extent for a in axes])
    named = substitute(value, {a: axis(b) for a, b in zip(axes, own, strict=True)})
    return named, tuple(a.extent for a in own)


# --- stores that share a launch


@dataclass
class Group:
    domain: IterationDomain
    stores: list[Store]
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)


def _grouped(stores: Sequence[Store]) -> list[Group]:
    """Groups stores into launches: each joins the first launch of its domain after those that write what
    it loads."""
    groups: list[Group] = []
    for s in stores:
        domain = iteration_domain(s)
        assert domain is not None
        reads = {n.arg for n in loads((s.offset, s.value))}
        first = 0
        for k, g in enumerate(groups):
            # If one launch both reads and writes an input, it reads first (elementwise.py).
            if any(b.kind is not Kind.INPUT for b in g.writes & reads):
                first = k + 1
        host = next((g for g in groups[first:] if _joins(domain, reads, g)), None)
        if host is None:
            host = Group(domain, [])
            groups.append(host)
        elif domain.inner and not host.domain.inner:
            host.domain = domain
        host.stores.append(s)
        host.reads |= reads
        host.writes.add(s.buffer)
    return groups


def _joins(domain: IterationDomain, reads: set[Buffer], group: Group) -> bool:
    group_domain = group.domain
    if domain.extents == group_domain.extents:
        return True
    folding, plain = (domain, group_domain) if domain.inner else (group_domain, domain)
    if plain.inner or not folding.inner:
        return False
    # Over the outer axes alone, or over both: then one loop serves both if they read the same tensors.
    outer, inner = folding.extents
    plain_extents = plain.extents[0]
    return plain_extents == outer or (
        plain_extents == (*outer, *inner) and bool(reads & group.reads)
    )
