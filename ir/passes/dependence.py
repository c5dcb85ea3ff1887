"""The steps of a program as a graph of groups that can be merged, for fusion.

A group is a library call, a check, or the stores of one future kernel.  The graph knows which group must run
before which (data, overwritten inputs, order of side effects), as bit sets of ancestors and descendants.  So
the question whether a merge would make a cycle is one AND.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field, replace

from frameloom.ir.fallible import may_raise
from frameloom.ir.library import CALLS, OWN
from frameloom.ir.program import Buffer, Extern, Kind, Program, Step, Store, read_by, sizes_in
from frameloom.ir.symbolic import unbacked


@dataclass(eq=False)
class Group:
    """A future step.  `stores` is empty for library calls and checks, whose `step` is set."""

    number: int
    position: int  # of its last member in the original program
    step: Step | None
    stores: list[Store]
    reads: KeysView[Buffer]  # in a fixed order: readers of a buffer are merged in this order
    names: list[str] = field(default_factory=list)
    origin: list[str] = field(default_factory=list)
    values: dict[Buffer, Store] = field(
        default_factory=dict
    )  # all values of members, stored or not

    @property
    def scatter(self) -> Store | None:
        """The store, if it is a scatter (then the group has no other store); else None."""
        return next((s for s in self.stores if s.scatter is not None), None)


class Graph:
    """Groups by number; merging keeps the order relation transitively closed.

    When a group joins another one, its bit stays in the masks of other groups, beside the other one's bit.
    So a merge changes only the masks of groups that were ordered with exactly one of the two, and these are
    few."""

    def __init__(self, program: Program) -> None:
        self.groups: dict[int, Group] = {}
        self.writer: dict[Buffer, Group] = {}  # for buffers that are not inputs
        self.readers: dict[Buffer, set[int]] = {}
        # Buffers that library calls or scatters change: their store does not give their final value.
        self.mutated: set[Buffer] = set()
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.alive = 0
        self.members: dict[int, int] = {}  # bits: its own, and of groups that joined it
        steps = failing_first(live_steps(program))
        order = Order()
        direct: dict[int, set[int]] = {}
        for number, step in enumerate(steps):
            stores = [s for k in step.kernels for s in k.stores]
            reads = dict.fromkeys(step.reads).keys()
            group = Group(number, number, None if stores else step, stores, reads)
            group.names = [k.name for k in step.kernels]
            group.origin = list(step.origin)
            if not stores:
                self.mutated.update(group.reads & step.changes)
            if (scatter := group.scatter) is not None:
                self.mutated.add(scatter.buffer)
            elif stores:
                group.values = {s.buffer: s for s in stores if s.buffer.kind is not Kind.INPUT}
            self.groups[number] = group
            for b in step.writes:
                if b.kind is not Kind.INPUT:
                    self.writer[b] = group
            for b in group.reads:
                self.readers.setdefault(b, set()).add(number)
            direct[number] = order.needs(number, step)
            self.after[number] = self.before[number] = 0
            for n in direct[number]:
                self.before[number] |= 1 << n | self.before[n]
        for number in sorted(direct, reverse=True):
            self.members[number] = 1 << number
            self.alive |= 1 << number
            reach = self.after[number] | 1 << number
            for n in direct[number]:
                self.after[n] |= reach

    def mergeable(self, a: Group, b: Group) -> bool:
        """Whether no third group has to run between the two."""
        x, y = (a, b) if a.position < b.position else (b, a)
        between = (self.after[x.number] & self.before[y.number]) | (
            self.after[y.number] & self.before[x.number]
        )
        return between & self.alive == 0

    def depends(self, later: Group, earlier: Group) -> bool:
        return bool(self.before[later.number] >> earlier.number & 1)

    def merge(self, a: Group, b: Group, stores: list[Store]) -> None:
        """Merges `b` into `a`; `stores` are the stores of both."""
        both = self.members[a.number] = self.members[a.number] | self.members.pop(b.number)
        earlier = self.before[a.number], self.before.pop(b.number)
        later = self.after[a.number], self.after.pop(b.number)
        before, after = (earlier[0] | earlier[1]) & ~both, (later[0] | later[1]) & ~both
        self.before[a.number], self.after[a.number] = before, after
        alive = self.alive = self.alive & ~(1 << b.number)
        for n in _bits((earlier[0] ^ earlier[1]) & before & alive):
            self.after[n] |= both | after
        for n in _bits((later[0] ^ later[1]) & after & alive):
            self.before[n] |= both | before
        for buffer in b.reads:
            self.readers[buffer].discard(b.number)
        for buffer in a.reads:
            self.readers[buffer].discard(a.number)
        a.values.update(b.values)
        for buffer in b.values:
            self.writer[buffer] = a
        # Names and origins stay in program order.
        first, second = (a, b) if a.position <= b.position else (b, a)
        a.names, a.origin = first.names + second.names, first.origin + second.origin
        a.position = max(a.position, b.position)
        del self.groups[b.number]
        self.replace_stores(a, stores)

    def forget(self, group: Group) -> None:
        """Drops a group that no other group needs."""
        for table in (self.groups, self.before, self.after, self.members):
            del table[group.number]
        self.alive &= ~(1 << group.number)

    def replace_stores(self, group: Group, stores: list[Store]) -> None:
        """Sets a group's stores, without those that no group needs any more."""
        for buffer in group.reads:
            self.readers[buffer].discard(group.number)
        group.stores = [
            s for s in stores if s.buffer.kind is not Kind.TEMP or self.readers.get(s.buffer)
        ]
        group.reads = read_by(group.stores).keys()
        for buffer in group.reads:
            self.readers.setdefault(buffer, set()).add(group.number)

    def ordered(self) -> list[Group]:
        """Returns the groups in an order that respects all dependences, otherwise in that of the original
        program."""
        waiting = {n: bin(mask & self.alive).count("1") for n, mask in self.before.items()}
        ready = [(self.groups[n].position, n) for n, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        result = []
        while ready:
            _, n = heapq.heappop(ready)
            result.append(self.groups[n])
            for later in _bits(self.after[n] & self.alive):
                waiting[later] -= 1
                if waiting[later] == 0:
                    heapq.heappush(ready, (self.groups[later].position, later))
        assert len(result) == len(self.groups), "a cycle among groups"
        return result


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Order:
    """For each step of a program, the steps that it must wait for."""

    def __init__(self) -> None:
        self.last_write: dict[Buffer, int] = {}
        self.reads_since: dict[Buffer, list[int]] = {}
        self.effect: int | None = None
        self.failing: list[int] = []

    def needs(self, number: int, step: Step, alone: bool = False) -> set[int]:
        """Returns the steps that this step waits for.  `alone`: only those that its own data and effects
        need."""
        dependences: set[int] = set()
        for buffer in step.reads:
            if buffer in self.last_write:
                dependences.add(self.last_write[buffer])
            self.reads_since.setdefault(buffer, []).append(number)
        for buffer in dict.fromkeys(step.changes):
            dependences.update(self.reads_since.pop(buffer, ()))
            if buffer in self.last_write:
                dependences.add(self.last_write[buffer])
            self.last_write[buffer] = number
        if step.commits and not alone:
            # If the call bails out, nothing may have changed before.
            dependences.update(self.failing)
        if step.may_fail:
            self.failing.append(number)
        if step.has_effect:
            if self.effect is not None:
                dependences.add(self.effect)
            self.effect = number
        dependences.discard(number)
        return dependences


def failing_first(steps: list[Step]) -> list[Step]:
    """Moves steps that commit, and steps that need them, behind the last step that may fail and does not need
    them."""
    last = max((k for k, step in enumerate(steps) if step.may_fail), default=0)
    if not any(step.commits for step in steps[:last]):
        return steps
    order = Order()
    needs = [order.needs(k, step, alone=True) for k, step in enumerate(steps[: last + 1])]
    first = {k for k, step in enumerate(steps[: last + 1]) if step.may_fail}
    for k in range(last, -1, -1):
        if k in first:
            first |= needs[k]
    later: set[int] = set()
    for k, step in enumerate(steps[: last + 1]):
        if k not in first and (step.commits or not later.isdisjoint(needs[k])):
            later.add(k)
    ahead = [step for k, step in enumerate(steps[: last + 1]) if k not in later]
    return [*ahead, *(steps[k] for k in sorted(later)), *steps[last + 1 :]]


def fails_behind_writes(program: Program) -> bool:
    """Whether a call can end (and would bail out) after an input is written: the step that fails needs the
    written values."""
    steps = iter(failing_first(live_steps(program)))
    return any(s.writes_input for s in steps) and any(s.may_fail for s in steps)


def _must_run(step: Extern) -> bool:
    """Whether a library call has to run even if no step uses its results."""
    is_floating = any(b is not None and (b.dtype is None or b.dtype.is_float) for b in step.results)
    is_known = step.target in OWN or step.target in CALLS
    return step.has_effect or (not is_known and may_raise(step.target, is_floating))


def live_steps(program: Program) -> list[Step]:
    """Returns the steps that outputs, inputs or effects depend on."""
    needed = set(program.returned)
    needed.update(unbacked.sources(n for o in program.outputs for n in sizes_in(o)))
    needed.update(unbacked.checked(s for step in program.steps for s, _, _ in step.defines))
    live: list[Step] = []
    for step in reversed(program.steps):
        if isinstance(step, Extern):
            if not any(b in needed for b in step.results) and not _must_run(step):
                continue
            used = tuple(b if b in needed else None for b in step.results)
            if used != step.results and all(b.kind is Kind.EXTERN for b in step.writes):
                step = replace(step, results=used)
        kept = step.keeping(lambda s: s.buffer in needed or s.buffer.kind is Kind.INPUT)
        if kept is not None:
            needed.update(kept.reads)
            live.append(kept)
    return live[::-1]
