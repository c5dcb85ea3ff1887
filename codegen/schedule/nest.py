"""Turns a kernel into a loop tree.

A block has sinks (`goals`): stores and reductions, each with axes that no loop iterates over yet (open axes).
A reduction inside a sink that depends on no open axis becomes a sink of the same block and runs first. A sink
without further reductions inside is a leaf. Otherwise a loop over the axes that those reductions depend on is
made, and a block inside the loop handles the rest. So a softmax becomes: rows { max; sum of exponentials;
store }, a cross entropy: reduction over rows { max; sum }, a batch norm: channels { mean; variance; store }.

Sinks that do not need each other's results and have the same open extents share a loop nest (`Pass`). Axes of
different sinks get the same names by position, so that equal values of different loop nests are the same
node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from frameloom.codegen.cpp.vector import Isa
from frameloom.codegen.schedule.cost import count
from frameloom.codegen.schedule.layout import coalesce
from frameloom.codegen.schedule.loop_nest import Accumulate, Assign, Fold, Pass, Tree
from frameloom.codegen.schedule.repeated import repeated
from frameloom.codegen.schedule.row_parts import row_by_row
from frameloom.codegen.schedule.scans import Scan, steps_of
from frameloom.codegen.schedule.scratch import is_scratch, materialise
from frameloom.codegen.schedule.sink import Sink
from frameloom.codegen.schedule.split_axes import split
from frameloom.codegen.schedule.tile_cpu import finish
from frameloom.ir.node import Axis, Node, axis, index
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel
from frameloom.ir.substitute import loads, walk


def schedule(kernel: Kernel, isa: Isa) -> Tree:
    """Returns the loop tree of `kernel` for vectors of `isa`."""
    steps = steps_of(kernel.stores)
    body: list[Pass | Assign | Accumulate] = []
    buffers: dict[Buffer, None] = {}
    scratch = steps.scratch
    for step in steps.steps:
        stores = step.stores if isinstance(step, Scan) else split(step)
        if isinstance(step, Scan):
            body.append(step.tree())
        else:
            goals = [Sink(s.axes, s.value, s.buffer, s.offset) for s in stores]
            goals, stored_buffers = materialise(
                [_without_unit_axes(g) for g in goals], len(scratch)
            )
            body += _Block(frozenset(), frozenset(), 0).build(goals)
            scratch += stored_buffers
        for s in stores:
            buffers |= dict.fromkeys(n.arg for n in loads((s.offset, s.value)))
            buffers[s.buffer] = None
    for buffer in scratch:
        buffers.pop(buffer, None)
    tree = Tree(body, tuple(buffers), tuple(scratch))
    finish(tree, isa)
    return tree


def _without_unit_axes(goal: Sink) -> Sink:
    units = {a: index(0) for a in goal.axes if a.extent == 1}
    if not units:
        return goal
    return goal.renamed(units, tuple(a for a in goal.axes if a.extent != 1))


def _scratch_read(roots: Iterable[Node]) -> set[Buffer]:
    return {n.arg for n in loads(roots) if is_scratch(n.arg)}


class _Block:
    """Builds one block. `bound`: axes of the enclosing loops; `done`: reductions that are already computed
    there."""

    def __init__(self, bound: frozenset[Axis], done: frozenset[Node], depth: int) -> None:
        self.bound = bound
        self.done = done
        self.depth = depth

    def build(self, goals: Sequence[Sink]) -> list[Pass | Assign | Accumulate]:
        goals = self._with_reductions(goals)
        goals = row_by_row([self._planned(g) for g in goals])
        goals = self._shared_names(goals)
        self._set_stages(goals)
        body: list[Pass | Assign | Accumulate] = []
        for group in self._groups(goals):
            body += self._pass(group)
        return body

    # --- goals

    def _with_reductions(self, goals: Sequence[Sink]) -> list[Sink]:
        seen: dict[Node, None] = {}
        waiting = list(goals)
        result = list(goals)
        while waiting:
            goal = waiting.pop()
            for reduction in self._inside(goal.roots):
                if reduction in seen or not reduction.free <= self.bound:
                    continue
                seen[reduction] = None
                new = Sink(
                    reduction.arg.axes,
                    reduction.srcs[0],
                    reduction=reduction,
                    positions=reduction.arg.axes,
                )
                waiting.append(new)
                result.append(new)
        return result

    def _inside(self, roots: Iterable[Node]) -> list[Node]:
        """Returns the REDUCEs to compute for `roots`, without those nested in one that is complete at this
        block."""

        def is_open(n: Node) -> bool:
            return n not in self.done and not (n.op is Op.REDUCE and n.free <= self.bound)

        below = walk(roots, lambda n: n.bound and is_open(n))
        return [n for n in below if n.op is Op.REDUCE and n not in self.done]

    def _planned(self, goal: Sink) -> Sink:
        """Sets `bind`: the open axes that the unfinished reductions inside depend on, smallest set first."""
        open_axes = set(goal.axes)
        needs = [frozenset(r.free & open_axes) for r in self._inside(goal.roots)]
        needs = [n for n in needs if n]
        if not needs:
            inner = repeated(goal)
            if inner is None:
                return goal
            return replace(goal, bind=tuple(a for a in goal.axes if a != inner))
        first = min(needs, key=lambda n: (len(n), count(n)))
        return replace(goal, bind=tuple(a for a in goal.axes if a in first))

    def _shared_names(self, goals: list[Sink]) -> list[Sink]:
        """Gives the same axes to sinks with the same open extents, and then to sinks that bind the same
        extents."""
        names: dict[tuple[int, ...], tuple[Axis, ...]] = {}
        bound_names: dict[tuple[int, ...], tuple[Axis, ...]] = {}
        result: list[Sink] = []
        for goal in sorted(goals, key=lambda g: (not g.bind, -len(g.axes))):
            extents = tuple(a.extent for a in goal.axes)
            bind_extents = tuple(a.extent for a in goal.bind)
            if extents in names:
                axes = names[extents]
            else:
                axes = tuple(
                    Axis(f"k{self.depth}_{len(names)}_{i}", e) for i, e in enumerate(extents)
                )
                known = bound_names.get(bind_extents)
                if known is not None and bind_extents:
                    renaming = dict(zip(goal.bind, known, strict=True))
                    axes = tuple(renaming.get(a, b) for a, b in zip(goal.axes, axes, strict=True))
                names[extents] = axes
            mapping = {a: axis(b) for a, b in zip(goal.axes, axes, strict=True) if a != b}
            bind = tuple(b for a, b in zip(goal.axes, axes, strict=True) if a in goal.bind)
            bound_names.setdefault(bind_extents, bind)
            result.append(replace(goal.renamed(mapping, axes), bind=bind))
        return result

    def _set_stages(self, goals: list[Sink]) -> None:
        by_reduction = {g.reduction: g for g in goals if g.reduction is not None and g.fold is None}
        by_scratch = {g.buffer: g for g in goals if g.buffer is not None and is_scratch(g.buffer)}
        needs = {
            id(g): [by_reduction[r] for r in self._inside(g.roots) if r in by_reduction]
            + [by_scratch[b] for b in _scratch_read(g.roots) if b in by_scratch]
            for g in goals
        }
        changed = True
        while changed:
            changed = False
            for g in goals:
                stage = max((n.stage + 1 for n in needs[id(g)]), default=0)
                if stage != g.stage:
                    g.stage = stage
                    changed = True

    def _groups(self, goals: list[Sink]) -> list[list[Sink]]:
        """Returns groups of sinks that share a loop nest, in the order of the loop nests."""
        groups: dict[tuple, list[Sink]] = {}
        for g in sorted(goals, key=lambda g: (g.stage, g.fold is not None)):
            key = (g.stage, frozenset(g.bind) or frozenset(g.axes), bool(g.bind))
            groups.setdefault(key, []).append(g)
        # Leaf stores join a loop over some of their axes, or a later loop nest over the same axes.
        merged = dict(groups)
        for key in groups:
            _, axes, inside = key
            if inside or not axes:
                continue
            members = merged[key]  # with those that have joined it
            hosts = [
                k for k in merged
                if k != key and k[0] >= key[0] and ((k[2] and k[1] <= axes) or (not k[2] and k[1] == axes))
            ]  # fmt: skip
            stores = [g for g in members if g.buffer is not None]
            if hosts and len(stores) == len(members):
                host = min(hosts, key=lambda k: (k[0], not k[2]))
                if host[2]:
                    bind = merged[host][0].bind
                    members = [replace(g, bind=bind, stage=host[0]) for g in members]
                merged[host] = merged[host] + members
                del merged[key]
        return [merged[k] for k in sorted(merged, key=lambda k: k[0])]

    # --- passes

    def _pass(self, group: list[Sink]) -> list[Pass | Assign | Accumulate]:
        if not group[0].axes and not group[0].bind:
            return [self._item(g) for g in group]
        bind = group[0].bind
        group, axes = coalesce(group, bind or group[0].axes)
        folds = []
        inner = []
        for g in group:
            fold = g.fold
            if g.reduction is not None and fold is None:
                fold = Fold(g.reduction, g.value, g.positions)
                folds.append(fold)
            inner.append(
                replace(
                    g, fold=fold, axes=tuple(a for a in g.axes if a not in axes), bind=(), stage=0
                )
            )
        if not bind:
            return [Pass(axes, [self._item(g) for g in inner], folds)]
        done = self.done | {r for g in group for r in self._inside(g.roots) if r.free <= self.bound}
        block = _Block(self.bound | set(axes), done, self.depth + 1)
        return [Pass(axes, block.build(inner), folds)]

    def _item(self, goal: Sink) -> Assign | Accumulate:
        if goal.buffer is not None:
            return Assign(goal.buffer, goal.offset, goal.value)
        assert goal.fold is not None
        goal.fold.value, goal.fold.axes = goal.value, goal.positions
        return Accumulate(goal.fold)
