"""Cumulative reductions on the CPU: one loop over the positions of an axis, in which each store gets the
running value.

A store is part of such a loop if all its cumulative reductions end at the store's own position along one
axis. Other cumulative reductions, and reductions that such a loop needs, are stored to scratch memory first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from frameloom.codegen.schedule.layout import dense, place_in
from frameloom.codegen.schedule.loop_nest import Accumulate, Assign, Fold, Pass
from frameloom.codegen.schedule.scratch import PREFIX
from frameloom.ir import cumulative
from frameloom.ir.cumulative import Prefix, prefix
from frameloom.ir.index import bounds
from frameloom.ir.node import Axis, Node, axis, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Store
from frameloom.ir.substitute import loads, substitute, topological, transform
from frameloom.ir.symbolic.compare import at_most, less


@dataclass
class Scan:
    """Stores along one axis, and the cumulative reductions up to the current position that they need. `folds`
    maps each REDUCE to its value at the position; a REDUCE comes after those inside it."""

    outer: tuple[Axis, ...]
    along: Axis
    folds: dict[Node, Node]
    stores: list[Store] = field(default_factory=list)

    def tree(self) -> Pass:
        folds = [Fold(n, value, (self.along,)) for n, value in self.folds.items()]
        body = [Accumulate(f) for f in folds]
        body += [Assign(s.buffer, s.offset, s.value) for s in self.stores]
        inner = Pass((self.along,), body, folds, scan=True)
        return Pass(self.outer, [inner]) if self.outer else inner


@dataclass
class Steps:
    """The parts of a kernel, in order: lists of stores without cumulative reductions, and scans."""

    steps: list[list[Store] | Scan] = field(default_factory=list)
    scratch: list[Buffer] = field(default_factory=list)
    stored: dict[Node, Node] = field(default_factory=dict)

    def add(self, store: Store) -> None:
        roots = (store.offset, store.value)
        if not any(prefix(n) for n in topological(roots) if n.op is Op.REDUCE):
            self._plain(store)
            return
        scan = _scan(store)
        if scan is None:
            self._plain(self._without_folds(store))
            return
        self._join(self._without_reductions(scan))

    def _plain(self, store: Store) -> None:
        if not self.steps or isinstance(self.steps[-1], Scan):
            self.steps.append([])
        last = self.steps[-1]
        assert isinstance(last, list)
        last.append(store)

    def _join(self, scan: Scan) -> None:
        """Adds `scan`. Scans over the same loops share a loop nest."""
        last = self.steps[-1] if self.steps else None
        same_loops = isinstance(last, Scan) and (last.outer, last.along) == (scan.outer, scan.along)
        if not same_loops or {s.buffer for s in last.stores} & _loaded(scan):
            self.steps.append(scan)
            return
        last.folds.update(scan.folds)
        last.stores += scan.stores

    def _without_folds(self, store: Store) -> Store:
        """Replaces the store's cumulative reductions by loads from scratch memory that has the results for
        all positions."""

        def visit(n: Node) -> Node | None:
            scan = prefix(n) if n.op is Op.REDUCE else None
            if scan is None:
                return None
            along = Axis(f"{scan.k.name}_to", scan.k.extent)
            everywhere = self._materialised(scan.up_to(axis(along)))
            known = bounds(scan.limit)
            if known is not None and at_most(0, known[0]) and less(known[1], along.extent):
                return substitute(everywhere, {along: scan.limit})
            return cumulative.at(scan, everywhere, along)

        return store.transformed(visit)

    def _without_reductions(self, scan: Scan) -> Scan:
        """Replaces the reductions that are not the scan's own by loads."""

        def visit(n: Node) -> Node | None:
            return self._materialised(n) if n.op is Op.REDUCE and prefix(n) is None else None

        folds = dict(scan.folds)
        own = set(folds)
        for n, value in folds.items():
            folds[n] = transform([value], visit, lambda m: m in own)[0]
        stores = []
        for s in scan.stores:
            value = transform([s.value], visit, lambda m: m in own)[0]
            stores.append(replace(s, value=value))
        return Scan(scan.outer, scan.along, folds, stores)

    def _materialised(self, n: Node) -> Node:
        """Returns a load of `n` from scratch memory, which has one element per position of the axes of
        `n`."""
        read = self.stored.get(n)
        if read is None:
            axes = tuple(sorted(n.free, key=lambda a: a.name))
            buffer = dense(f"{PREFIX}kept{len(self.stored)}", n.dtype, axes)
            read = self.stored[n] = load(buffer, place_in(axes))
            self.add(Store(buffer, place_in(axes), n, axes))
            self.scratch.append(buffer)
        return read


def steps_of(stores: Sequence[Store]) -> Steps:
    steps = Steps()
    for store in stores:
        steps.add(store)
    return steps


def _scan(store: Store) -> Scan | None:
    """Returns the scan that computes the store; None if there is none."""
    for a in store.axes:
        folds: dict[Node, Node] = {}
        if _collect((store.offset, store.value), a, folds) and folds:
            return Scan(tuple(b for b in store.axes if b != a), a, folds, [store])
    return None


def _collect(roots: Sequence[Node], a: Axis, folds: dict[Node, Node]) -> bool:
    """Adds the cumulative reductions up to `a` that `roots` need to `folds`; returns False if `roots` need
    others."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n in seen or n in folds:
            continue
        seen.add(n)
        scan = prefix(n) if n.op is Op.REDUCE else None
        if scan is not None:
            value = _at(scan, a)
            if value is None or not _collect([value], a, folds):
                return False
            folds[n] = value
        elif n.op is Op.REDUCE:
            if any(prefix(m) for m in topological(n.srcs) if m.op is Op.REDUCE):
                return False
        else:
            stack.extend(n.srcs)
    return True


def _at(scan: Prefix, a: Axis) -> Node | None:
    return substitute(scan.value, {scan.k: axis(a)}) if scan.along == a else None


def _loaded(scan: Scan) -> set[Buffer]:
    roots = [*scan.folds.values(), *(s.value for s in scan.stores)]
    return {n.arg for n in loads(roots)}
