"""Isomorphic parts of a program, which do the same work on different tensors, are fused once.

An optimizer's step or a `torch._foreach_` op does the same for hundreds of tensors, and these parts do not
depend on each other.  Only the first part goes through fusion.  The fused kernels are then instantiated for
the other parts; elementwise work on a GPU becomes a list, which is one launch for all of them.

Most such parts are found before lowering (lower/graph_passes/repeats.py; `Program.isomorphic_parts`), the
others here.
"""

from __future__ import annotations

import math
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
    """Kernels, by number, connected by buffers that one of them writes; `places` are their loads and stores,
    in order."""

    steps: list[int]
    extent: int = 1
    places: dict[tuple[Buffer, int], int] = field(default_factory=dict)
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
    groups = _groups(program)
    if not groups:
        return fuse(program)
    left_out = {n for g in groups for part in g[1:] for n in part.steps}
    steps = tuple(s for n, s in enumerate(program.steps) if n not in left_out)
    try:
        return _for_all(fuse(replace(program, steps=steps)), program, groups)
    except _Unfit:
        return fuse(program)


# --- parts


def _groups(program: Program) -> list[list[_Part]]:
    parts = _parts(program)
    if len(parts) < MIN_PARTS:
        return []
    # Parts that share a tensor are left alone: fused with each other, they load it only once.
    readers: dict[Buffer, int] = {}
    for part in parts:
        touched = {b for n in part.steps for b in program.steps[n].reads}
        for b in touched:
            readers[b] = readers.get(b, 0) + 1
    groups: dict[Hashable, list[_Part]] = {}
    for part in parts:
        if _describe(program, part, readers):
            groups.setdefault(tuple(part.key), []).append(part)
    return [g for g in groups.values() if len(g) >= MIN_PARTS]


def _parts(program: Program, apart: Set[Buffer] = frozenset()) -> list[_Part]:
    """Groups the steps into parts: steps that share a buffer which some step writes (except `apart`) are in
    one part."""
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
    parts: dict[int, _Part] = {}
    for n in range(len(program.steps)):
        parts.setdefault(find(n), _Part([])).steps.append(n)
    return list(parts.values())


def _describe(program: Program, part: _Part, readers: dict[Buffer, int]) -> bool:
    """Fills in `part`; False if a step is not elementwise."""
    buffers: dict[Buffer, int] = {}
    extents = []
    for n in part.steps:
        step = program.steps[n]
        if (matched := template_of(step)) is None:
            return False
        template, instance = matched
        places = []
        for buffer, start in instance.columns:
            if readers.get(buffer, 0) > 1 and buffer.shape and buffer.shape != (1,):
                return False
            place = part.places.setdefault((buffer, start), len(part.places))
            places.append((place, buffers.setdefault(buffer, len(buffers)), buffer.kind))
        numbers = tuple((type(v), exact(v)) for v in instance.numbers)
        part.key.append((step.kernels[0].device, template.key, tuple(places), numbers))
        extents.append(instance.extent)
    part.extent = max(extents, key=hint_of)
    part.key.append(tuple(e == part.extent for e in extents))
    part.key.append(part.extent == 1)
    return all(e in (1, part.extent) for e in extents)


# --- the fused first part, instantiated for all


def _for_all(fused: Program, program: Program, groups: list[list[_Part]]) -> Program:
    group_of: dict[Buffer, list[_Part]] = {}
    for g in groups:
        for n in g[0].steps:
            group_of.update(dict.fromkeys(program.steps[n].writes, g))
    steps: list[Step] = []
    for step in fused.steps:
        touched = {id(w): w for b in step.buffers if (w := group_of.get(b)) is not None}
        if not touched:
            steps.append(step)
            continue
        if len(touched) > 1:
            raise _Unfit
        (group,) = touched.values()
        steps += _instantiate(step, group)
    return replace(fused, steps=tuple(steps))


def _instantiate(step: Step, group: list[_Part]) -> list[Step]:
    template, instance = _matched(step)
    first = group[0]
    if instance.extent not in (1, first.extent) or any(
        c not in first.places for c in instance.columns
    ):
        raise _Unfit
    at = [first.places[c] for c in instance.columns]
    instances = []
    for part in group:
        places = list(part.places)
        extent = part.extent if instance.extent == first.extent else 1
        instances.append(KernelInstance(extent, tuple(places[k] for k in at), instance.numbers))
    return _kernels(step, template, instances)


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


# --- parts that were lowered once


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
        if group.extent is not None
        for n in numbers
    )


def _members(program: Program) -> dict[IsomorphicParts, list[int]]:
    """Returns the steps of first parts, by number."""
    owner = {b: group for group in program.isomorphic_parts for b in group.first}
    shared = frozenset().union(*(group.shared for group in program.isomorphic_parts))
    returned = set(program.returned)
    members: dict[IsomorphicParts, list[int]] = {}
    for part in _parts(program, shared):
        steps = [program.steps[n] for n in part.steps]
        owners = {owner[b] for s in steps for b in s.buffers if b in owner}
        if not owners:
            continue
        if len(owners) > 1:
            raise _Unfit
        members.setdefault(owners.pop(), []).extend(part.steps)
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
    parts = []
    for k, theirs in enumerate(group.others, 1):
        extent = None if group.extent is None else max(math.prod(b.shape) for b in theirs)
        names = dict(zip(group.first, theirs, strict=True))
        names.update({b: _corresponding(b, k, group.extent, extent) for b in inner})
        parts.append((extent, names))
    if group.extent is not None or not (
        has_intermediates or any(template_of(s) is None for s in steps)
    ):
        for n, step in zip(numbers, steps, strict=True):
            instead[n] = _instantiate_template(step, group.extent, parts)
        return
    # The steps of one part follow those of another: they share memory.
    part_steps = instead[numbers[-1]] = [steps[-1]]
    for k, (_, names) in enumerate(parts, 1):
        part_steps += [step.renamed(names, f"_of_{k}") for step in steps]


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
    step: Step, extent: int | None, parts: Sequence[tuple[int | None, dict[Buffer, Buffer]]]
) -> list[Step]:
    template, instance = _matched(step)
    if extent is not None and instance.extent not in (1, extent):
        raise _Unfit
    instances = [instance]
    for other, names in parts:
        own = other if other is not None and instance.extent == extent else instance.extent
        instances.append(
            KernelInstance(
                own, tuple((names.get(b, b), k) for b, k in instance.columns), instance.numbers
            )
        )
    return _kernels(step, template, instances)
