"""Horizontal fusion: many small elementwise kernels that are isomorphic and do not need each other become one
launch.

An optimizer step over hundreds of parameters consists of hundreds of such kernels, and so does any loop over
a list of tensors or a `torch._foreach_` op. The values in which the kernels differ (addresses, extents,
numbers) are read at run time, so that one text serves lists of any length and sizes.

Isomorphic kernels of the same *generation* cannot need each other. The generation is the largest number of
kernels of this template on any path of dependences that leads to the kernel. A group runs where its last kernel
can run.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from frameloom.ir.kernel_list import KernelInstance, KernelList, Template
from frameloom.ir.passes.dependence import Order
from frameloom.ir.passes.memory import size_in_bytes
from frameloom.ir.passes.templates import fold_common_numbers, template_of
from frameloom.ir.program import Kind, Program, Step, is_cuda

LEAST = 4  # minimum number of kernels for which one launch pays
HELD = 64 << 20  # bytes of intermediates that may be alive at once for the kernels of one list


def lists(program: Program) -> Program:
    """Returns `program` with isomorphic GPU kernels joined to lists."""
    candidates = _candidates(program)
    if not candidates:
        return program
    order = Order()
    needs = [order.needs(n, step) for n, step in enumerate(program.steps)]
    groups = _groups(program, candidates, needs)
    if not groups:
        return program
    return replace(program, steps=tuple(_ordered(program, groups, candidates, needs)))


@dataclass(eq=False)
class _Group:
    """Numbers of the steps that become one step."""

    members: list[int]
    ready: list[int] = field(default_factory=list)


_Candidates = dict[int, tuple[Hashable, Template, KernelInstance]]


def _candidates(program: Program) -> _Candidates:
    """Returns number of a step -> key, template and instance, for keys that enough steps have."""
    candidates: _Candidates = {}
    counts: dict[Hashable, int] = {}
    checks = program.checked
    for number, step in enumerate(program.steps):
        pair = template_of(step) if checks.isdisjoint(step.writes) else None
        if pair is not None and pair[1].is_static and is_cuda(device := step.kernels[0].device):
            key = (device, pair[0].key)
            candidates[number] = (key, *pair)
            counts[key] = counts.get(key, 0) + 1
    return {n: f for n, f in candidates.items() if counts[f[0]] >= LEAST}


def _groups(program: Program, candidates: _Candidates, needs: list[set[int]]) -> list[_Group]:
    before: list[dict[Hashable, int]] = []  # key -> generation of the next kernel of this template
    members: dict[Hashable, list[int]] = {}
    for number in range(len(program.steps)):
        known: dict[Hashable, int] = {}
        for n in needs[number]:
            for key, generation in before[n].items():
                if known.get(key, 0) < generation:
                    known[key] = generation
        if number in candidates:
            key = candidates[number][0]
            generation = known.get(key, 0)
            members.setdefault((key, generation), []).append(number)
            known[key] = generation + 1
        before.append(known)
    return [
        _Group(part)
        for numbers in members.values()
        for part in _parts(program, numbers)
        if len(part) >= LEAST
    ]


def _parts(program: Program, numbers: list[int]) -> Iterator[list[int]]:
    """Yields runs of `numbers` whose intermediates may be alive at the same time."""
    part: list[int] = []
    held = 0
    for n in numbers:
        own = sum(
            size_in_bytes(b) for b in program.steps[n].buffers if b.kind in (Kind.TEMP, Kind.EXTERN)
        )
        if part and held + own > HELD:
            yield part
            part, held = [], 0
        part.append(n)
        held += own
    yield part


def _ordered(
    program: Program, groups: list[_Group], candidates: _Candidates, needs: list[set[int]]
) -> Iterator[Step]:
    """Yields the steps in an order in which dependences come first, each group at one place if possible."""
    users: list[list[int]] = [[] for _ in needs]
    waiting = [len(earlier) for earlier in needs]
    for n, earlier in enumerate(needs):
        for e in earlier:
            users[e].append(n)
    group_of = {n: g for g in groups for n in g.members}
    ready = [n for n, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)

    def done(numbers: Iterable[int]) -> None:
        for n in numbers:
            for user in users[n]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready, user)

    while ready or group_of:
        if ready:
            n = heapq.heappop(ready)
            group = group_of.get(n)
            if group is None:
                yield program.steps[n]
                done([n])
                continue
            group.ready.append(n)
            if len(group.ready) < len(group.members):
                continue
        else:
            # Two groups wait for each other: the members of one that can run go first.
            group = max(group_of.values(), key=lambda g: (len(g.ready), -g.members[0]))
        now = sorted(group.ready)
        group.members = [m for m in group.members if m not in set(now)]
        group.ready = []
        for m in now:
            del group_of[m]
        if len(now) >= LEAST:
            yield _list(program, now, candidates)
        else:
            yield from (program.steps[m] for m in now)
        done(now)


def _list(program: Program, numbers: list[int], candidates: _Candidates) -> KernelList:
    kernels = [k for n in numbers for k in program.steps[n].kernels]
    template, instances = fold_common_numbers(
        candidates[numbers[0]][1], [candidates[n][2] for n in numbers]
    )
    origin = tuple(dict.fromkeys(line for k in kernels for line in k.origin))
    return KernelList(f"{kernels[0].name}_list", template, instances, origin)
