"""Parts of a program that do the same elementwise work on other tensors are fused once.

An optimizer's step or a `torch._foreach_` op does the same for hundreds of tensors, and what it does for one needs
nothing of what it does for another.  One such part stands for all while kernels are fused.  What becomes of it is then
said again for the others: on a GPU as a list, one launch for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from frameloom.ir.forms import Form, exact, form_of, instance, settled
from frameloom.ir.memory import buffers_of, reads_of, writes_of
from frameloom.ir.program import Buffer, Kernel, KernelList, Program, Row, is_cuda

LEAST = 4  # parts for which it pays


@dataclass(eq=False)
class _Part:
    """Kernels, by number, that touch what one of them writes; `places` are what they load and store, in order."""

    steps: list[int]
    extent: int = 1
    places: dict[tuple[Buffer, int], int] = field(default_factory=dict)
    key: list[Hashable] = field(default_factory=list)


class _Unfit(Exception):
    """The part that stands for others has become something that cannot be said of them."""


def once_each(program: Program, fuse: Callable[[Program], Program]) -> Program:
    """`fuse(program)`, where parts that are alike are fused once."""
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
    if len(parts) < LEAST:
        return []
    # A tensor that several read is loaded once where they are fused with each other.
    readers: dict[Buffer, int] = {}
    for part in parts:
        touched = {b for n in part.steps for b in reads_of(program.steps[n])}
        for b in touched:
            readers[b] = readers.get(b, 0) + 1
    found: dict[Hashable, list[_Part]] = {}
    for part in parts:
        if _describe(program, part, readers):
            found.setdefault(tuple(part.key), []).append(part)
    return [g for g in found.values() if len(g) >= LEAST]


def _parts(program: Program) -> list[_Part]:
    """Steps that touch a buffer which any of them writes are of one part."""
    leader = list(range(len(program.steps)))

    def find(n: int) -> int:
        while leader[n] != n:
            leader[n] = leader[leader[n]]
            n = leader[n]
        return n

    written = {b for s in program.steps for b in writes_of(s)}
    first: dict[Buffer, int] = {}
    for n, step in enumerate(program.steps):
        for b in buffers_of(step):
            if b in written:
                leader[find(n)] = find(first.setdefault(b, n))
    found: dict[int, _Part] = {}
    for n in range(len(program.steps)):
        found.setdefault(find(n), _Part([])).steps.append(n)
    return list(found.values())


def _describe(program: Program, part: _Part, readers: dict[Buffer, int]) -> bool:
    """Fills in `part`; False if it is not elementwise throughout."""
    buffers: dict[Buffer, int] = {}
    extents = []
    for n in part.steps:
        step = program.steps[n]
        if not isinstance(step, Kernel) or (made := form_of(step)) is None:
            return False
        form, row = made
        places = []
        for buffer, start in row.columns:
            if readers.get(buffer, 0) > 1 and buffer.shape and buffer.shape != (1,):
                return False
            place = part.places.setdefault((buffer, start), len(part.places))
            places.append((place, buffers.setdefault(buffer, len(buffers)), buffer.kind))
        numbers = tuple((type(v), exact(v)) for v in row.numbers)
        part.key.append((step.device, form.key, tuple(places), numbers))
        extents.append(row.extent)
    part.extent = max(extents)
    part.key.append(tuple(e == part.extent for e in extents))
    part.key.append(part.extent == 1)
    return all(e in (1, part.extent) for e in extents)


# --- what became of the first, for all


def _for_all(fused: Program, program: Program, groups: list[list[_Part]]) -> Program:
    group_of: dict[Buffer, list[_Part]] = {}
    for g in groups:
        for n in g[0].steps:
            group_of.update(dict.fromkeys(writes_of(program.steps[n]), g))
    steps: list[object] = []
    for step in fused.steps:
        touched = {id(w): w for b in buffers_of(step) if (w := group_of.get(b)) is not None}
        if not touched:
            steps.append(step)
            continue
        if len(touched) > 1 or not isinstance(step, Kernel):
            raise _Unfit
        (group,) = touched.values()
        steps += _said_again(step, group)
    return replace(fused, steps=tuple(steps))  # type: ignore[arg-type]


def _said_again(kernel: Kernel, group: list[_Part]) -> list[Kernel | KernelList]:
    made = form_of(kernel)
    if made is None:
        raise _Unfit
    form, row = made
    first = group[0]
    if row.extent not in (1, first.extent) or any(c not in first.places for c in row.columns):
        raise _Unfit
    at = [first.places[c] for c in row.columns]
    rows = []
    for part in group:
        places = list(part.places)
        extent = part.extent if row.extent == first.extent else 1
        rows.append(Row(extent, tuple(places[k] for k in at), row.numbers))
    form, less = settled(form, rows)
    if is_cuda(kernel.device):
        return [_list(kernel, form, less)]
    return [
        kernel if k == 0 else instance(form, r, f"{kernel.name}_of_{k}", kernel.origin)
        for k, r in enumerate(less)
    ]


def _list(kernel: Kernel, form: Form, rows: tuple[Row, ...]) -> KernelList:
    name = f"{kernel.name}_list"
    return KernelList(name, form.stores, form.columns, form.numbers, rows, kernel.origin)
