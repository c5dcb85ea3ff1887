"""In-place reuse: a kernel overwrites an intermediate that no later step needs.

If a kernel's store reads a temporary only at the very element that it writes, and this is the temporary's
last use, both become one buffer: `relu(x @ w)` is computed in the memory of the product.  The pass renames
the temporary, so that memory.py sees one buffer.
"""

from __future__ import annotations

from dataclasses import replace

from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.passes.inline import uses_in
from frameloom.ir.passes.memory import buffers_of, size_in_bytes
from frameloom.ir.program import Buffer, Check, Extern, Kernel, Kind, Program, Step, Store, View
from frameloom.ir.substitute import loads, transform


def reuse(program: Program) -> Program:
    """Returns `program` with fewer buffers."""
    last: dict[Buffer, int] = {}
    first: dict[Buffer, int] = {}
    for k, step in enumerate(program.steps):
        for b in buffers_of(step):
            last[b] = k
            first.setdefault(b, k)
    renamed: dict[Buffer, Buffer] = {}
    # A library call writes into its result buffer directly: its geometry must not change.
    rigid = {b for s in program.steps if isinstance(s, Extern) for b in s.results if b is not None}
    for k, step in enumerate(program.steps):
        if not isinstance(step, Kernel):
            continue
        for store in step.stores:
            new = store.buffer
            if first[new] != k or new.kind not in (Kind.TEMP, Kind.OUTPUT):
                continue
            for old in dict.fromkeys(n.arg for n in loads([store.value])):
                if last[old] != k or old in renamed or not _fits(old, step, store):
                    continue
                if old in rigid and (old.shape, old.strides) != (new.shape, new.strides):
                    continue
                renamed[old] = new
                if old in rigid:
                    rigid.add(new)
                break
    if not renamed:
        return program
    for old in reversed(list(renamed)):
        renamed[old] = renamed.get(renamed[old], renamed[old])
    steps = [_without_idle_stores(_step(s, renamed)) for s in program.steps]
    return replace(program, steps=tuple(s for s in steps if s is not None))


def _without_idle_stores(step: Step) -> Step | None:
    """Returns `step` without copies of elements to themselves; None if nothing is left."""
    if not isinstance(step, Kernel):
        return step
    needed = tuple(
        s
        for s in step.stores
        if s.value.op is not Op.LOAD or s.value.arg != s.buffer or s.value.srcs != (s.offset,)
    )
    return (
        None
        if not needed
        else step
        if len(needed) == len(step.stores)
        else replace(step, stores=needed)
    )


def _fits(old: Buffer, kernel: Kernel, store: Store) -> bool:
    """Whether `store` may overwrite `old`: it reads `old` only at the element that it writes."""
    new = store.buffer
    if old.kind is not Kind.TEMP or old.dtype is not new.dtype or old.device != new.device:
        return False
    if size_in_bytes(old) != size_in_bytes(new) or sum(s.buffer == new for s in kernel.stores) > 1:
        return False
    if any(
        n.arg == old for s in kernel.stores if s is not store for n in loads([s.value, s.offset])
    ):
        return False
    return all(not u.around and u.load.srcs[0] is store.offset for u in uses_in(store, [old]))


# --- renaming


def _step(step: Step, renamed: dict[Buffer, Buffer]) -> Step:
    if not any(b in renamed for b in buffers_of(step)):
        return step
    if isinstance(step, Check):
        return replace(step, buffer=renamed.get(step.buffer, step.buffer))
    if isinstance(step, Extern):
        args = tuple(_plain(a, renamed) for a in step.args)
        kwargs = tuple((k, _plain(v, renamed)) for k, v in step.kwargs)
        results = tuple(None if b is None else renamed.get(b, b) for b in step.results)
        return replace(step, args=args, kwargs=kwargs, results=results)

    def visit(n: Node) -> Node | None:
        if n.op is not Op.LOAD or n.arg not in renamed:
            return None
        return Node(Op.LOAD, n.dtype, n.srcs, renamed[n.arg])

    roots = transform([r for s in step.stores for r in (s.offset, s.value)], visit)
    pairs = zip(step.stores, roots[::2], roots[1::2], strict=True)
    stores = tuple(
        replace(s, buffer=renamed.get(s.buffer, s.buffer), offset=offset, value=value)
        for s, offset, value in pairs
    )
    return replace(step, stores=stores)


def _plain(value: object, renamed: dict[Buffer, Buffer]) -> object:
    if isinstance(value, View):
        return replace(value, buffer=renamed.get(value.buffer, value.buffer))
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(v, renamed) for v in value)
    return value
