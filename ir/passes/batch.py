"""Isomorphic parts of a program, which do the same work on different tensors, are fused once.

An optimizer's step or a `torch._foreach_` op does the same for hundreds of tensors, and these parts do not
depend on each other.  Only the first part goes through fusion.  The fused kernels are then instantiated for
the other parts; elementwise work on a GPU becomes a list, which is one launch for all of them.

Most such parts are found before lowering (lower/graph_passes/repeats.py; `Program.isomorphic_parts`), the
others here.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field, replace

from frameloom.ir.kernel_list import KernelInstance, KernelList, Template
from frameloom.ir.library import OWN
from frameloom.ir.passes.templates import exact, fold_common_numbers, template_of
from frameloom.ir.program import (
    Buffer,
    Extern,
    IsomorphicParts,
    Kernel,
    Kind,
    Program,
    Step,
    is_cuda,
)  # fmt: skip
from frameloom.ir.symbolic.expr import hint_of

MIN_PARTS = 4  # parts; with fewer, it does not pay


@dataclass(eq=False)
class _Part:
    """Elementwise kernels, by number; `starts`: where their first access of each buffer begins."""

    steps: list[int]
    extent: int = 1
    starts: dict[Buffer, int] = field(default_factory=dict)
    key: list[Hashable] = field(default_factory=list)


class _Unfit(Exception):
    """Fusion changed the first part in a way that cannot be instantiated for the others."""


def fuse_isomorphic_parts(program: Program, fuse: Callable[[Program], Program]) -> Program:
    """Returns `fuse(program)`, where isomorphic parts are fused once."""
    if program.isomorphic_parts:
        try:
            return expand(fuse(program))
        except _Unfit:
            program = expand(program)
    short = _with_first_parts(program)
    try:
        return expand(fuse(short))
    except _Unfit:
        return fuse(program)


# --- parts


def _with_first_parts(program: Program) -> Program:
    """Returns `program` with only the first of isomorphic parts."""
    parts = _parts(program)
    if len(parts) < MIN_PARTS:
        return program
    reads = ({b for n in part for b in program.steps[n].reads} for part in parts)
    readers = Counter(itertools.chain.from_iterable(reads))
    groups: dict[Hashable, list[_Part]] = {}
    for numbers in parts:
        if (part := _described(program, numbers, readers)) is not None:
            groups.setdefault(tuple(part.key), []).append(part)
    repeated = [g for g in groups.values() if len(g) >= MIN_PARTS]
    shared = frozenset(b for b, count in readers.items() if count > 1)
    isomorphic_parts = tuple(
        IsomorphicParts(
            tuple(g[0].starts),
            tuple(_in_place_of(g[0], part) for part in g[1:]),
            shared,
            tuple(part.extent for part in g),
        )
        for g in repeated
    )
    left_out = {n for g in repeated for part in g[1:] for n in part.steps}
    steps = tuple(s for n, s in enumerate(program.steps) if n not in left_out)
    return replace(program, steps=steps, isomorphic_parts=isomorphic_parts)


def _parts(program: Program, apart: Set[Buffer] = frozenset()) -> list[list[int]]:
    """Groups the steps, by number, into parts: steps that share a buffer which some step writes (except
    `apart`) are in one part."""
    leader = list(range(len(program.steps)))

    def find(n: int) -> int:
        while leader[n] != n:
            leader[n] = leader[leader[n]]
            n = leader[n]
        return n

    written = {b for s in program.steps for b in s.writes} - apart
    first: dict[Buffer, int] = {}
    for n, step in enumerate(program.steps):
        for b in step.buffers:
            if b in written:
                leader[find(n)] = find(first.setdefault(b, n))
    parts: dict[int, list[int]] = {}
    for n in range(len(program.steps)):
        parts.setdefault(find(n), []).append(n)
    return list(parts.values())


def _described(program: Program, steps: list[int], readers: Counter[Buffer]) -> _Part | None:
    """Returns the part of these steps; None if a step is not elementwise."""
    part = _Part(steps)
    numbers: dict[Buffer, int] = {}
    extents = []
    for n in steps:
        step = program.steps[n]
        if (matched := template_of(step)) is None:
            return None
        template, instance = matched
        places = []
        for buffer, start in instance.columns:
            # Parts that share a tensor are left alone: fused with each other, they load it only once.
            if readers[buffer] > 1 and buffer.shape and buffer.shape != (1,):
                return None
            number = numbers.setdefault(buffer, len(numbers))
            distance = start - part.starts.setdefault(buffer, start)
            places.append((number, distance, buffer.kind))
        values = tuple((type(v), exact(v)) for v in instance.numbers)
        part.key.append((step.kernels[0].device, template.key, tuple(places), values))
        extents.append(instance.extent)
    part.extent = max(extents, key=hint_of)
    part.key.append(tuple(e == part.extent for e in extents))
    part.key.append(part.extent == 1)
    return part if all(e in (1, part.extent) for e in extents) else None


def _in_place_of(first: _Part, other: _Part) -> tuple[tuple[Buffer, int], ...]:
    pairs = zip(first.starts.values(), other.starts.items(), strict=True)
    return tuple((buffer, start - own) for own, (buffer, start) in pairs)


# --- the fused first parts, instantiated for all


def _matched(step: Step) -> tuple[Template, KernelInstance]:
    matched = template_of(step)
    if matched is None:
        raise _Unfit
    return matched


def _kernels(step: Step, template: Template, instances: Sequence[KernelInstance]) -> list[Step]:
    """Returns the kernels of these instances; `step` is the kernel of the first instance."""
    (kernel,) = step.kernels
    # Before common numbers become constants: a list cannot have a symbolic size there either.
    static = all(r.is_static for r in instances)
    template, folded = fold_common_numbers(template, instances)
    if static and is_cuda(kernel.device):
        return [KernelList(f"{kernel.name}_list", template, folded, kernel.origin)]
    others = enumerate(folded[1:], 1)
    return [
        kernel,
        *(template.kernel(r, f"{kernel.name}_of_{k}", kernel.origin) for k, r in others),
    ]


def expand(program: Program) -> Program:
    """Returns `program` with the steps of all parts; raises _Unfit if the first part cannot be instantiated
    for others."""
    if not program.isomorphic_parts:
        return program
    instead: dict[int, list[Step]] = {}
    for group, numbers in _members(program).items():
        _instantiate_all(program, group, sorted(numbers), instead)
    steps = tuple(s for n, step in enumerate(program.steps) for s in instead.get(n, (step,)))
    return replace(program, steps=steps, isomorphic_parts=())


def can_expand(program: Program) -> bool:
    """Whether `expand` succeeds."""
    try:
        members = _members(program)
    except _Unfit:
        return False
    return all(
        template_of(program.steps[n]) is not None
        for group, numbers in members.items()
        if group.extents is not None
        for n in numbers
    )


def _members(program: Program) -> dict[IsomorphicParts, list[int]]:
    """Returns the steps of first parts, by number."""
    shared = frozenset().union(*(group.shared for group in program.isomorphic_parts))
    owner = {b: g for g in program.isomorphic_parts for b in g.first if b not in shared}
    returned = set(program.returned)
    members: dict[IsomorphicParts, list[int]] = {}
    for part in _parts(program, shared):
        steps = [program.steps[n] for n in part]
        owners = {owner[b] for s in steps for b in s.buffers if b in owner}
        if not owners:
            continue
        if len(owners) > 1:
            raise _Unfit
        members.setdefault(owners.pop(), []).extend(part)
        for step in steps:
            if not isinstance(step, Kernel | Extern) or getattr(step, "target", "") in OWN:
                raise _Unfit
            for b in step.writes:
                if b not in owner and (b in shared or b in returned or b.kind is Kind.INPUT):
                    raise _Unfit
    return members


def _instantiate_all(
    program: Program, group: IsomorphicParts, numbers: Sequence[int], instead: dict[int, list[Step]]
) -> None:
    """Fills in `instead`: the steps of all parts that replace the steps with these numbers."""
    steps = [program.steps[n] for n in numbers]
    inner = {b for s in steps for b in s.writes} - set(group.first)
    has_intermediates = any(b.kind in (Kind.TEMP, Kind.EXTERN) for s in steps for b in s.buffers)
    extents = group.extents or [None] * (1 + len(group.others))
    copies = []
    for k, (theirs, extent) in enumerate(zip(group.others, extents[1:], strict=True), 1):
        names = dict(zip(group.first, theirs, strict=True))
        names.update({b: (_corresponding(b, k, extents[0], extent), 0) for b in inner})
        copies.append((extent, names))
    if group.extents is not None or not (
        has_intermediates or any(template_of(s) is None for s in steps)
    ):
        for n, step in zip(numbers, steps, strict=True):
            instead[n] = _instantiate_template(step, extents[0], copies)
        return
    # The steps of one part follow those of another: they share memory.
    part_steps = instead[numbers[-1]] = [steps[-1]]
    for k, (_, names) in enumerate(copies, 1):
        renamed = {b: other for b, (other, _) in names.items()}
        part_steps += [step.renamed(renamed, f"_of_{k}") for step in steps]


def _corresponding(b: Buffer, k: int, extent: int | None, other: int | None) -> Buffer:
    """Returns the buffer of part `k` that corresponds to an intermediate of the first part."""
    name = f"{b.name}_of_{k}"
    if extent is None or math.prod(b.shape) == 1:
        return replace(b, name=name)
    if math.prod(b.shape) != extent:
        raise _Unfit
    assert other is not None
    return replace(b, name=name, shape=(other,), strides=(1,))


def _instantiate_template(
    step: Step,
    extent: int | None,
    copies: Sequence[tuple[int | None, dict[Buffer, tuple[Buffer, int]]]],
) -> list[Step]:
    template, instance = _matched(step)
    if extent is not None and instance.extent not in (1, extent):
        raise _Unfit
    instances = [instance]
    for other, names in copies:
        own = other if other is not None and instance.extent == extent else instance.extent
        places = [(start, names.get(b, (b, 0))) for b, start in instance.columns]
        columns = tuple((b, start + shift) for start, (b, shift) in places)
        instances.append(KernelInstance(own, columns, instance.numbers))
    return _kernels(step, template, instances)
