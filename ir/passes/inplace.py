"""In-place reuse: a kernel overwrites an intermediate that no later step needs.

If a kernel's store reads a temporary only at the very element that it writes, and this is the temporary's
last use, both become one buffer: `relu(x @ w)` is computed in the memory of the product.  The pass renames
the temporary, so that memory.py sees one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frameloom.ir.passes.inline import uses_in
from frameloom.ir.passes.memory import size_in_bytes
from frameloom.ir.program import Buffer, Kind, Program, Store
from frameloom.ir.substitute import loads


def reuse(program: Program) -> Program:
    """Returns `program` with fewer buffers."""
    last: dict[Buffer, int] = {}
    first: dict[Buffer, int] = {}
    for k, step in enumerate(program.steps):
        for b in step.buffers:
            last[b] = k
            first.setdefault(b, k)
    renamed: dict[Buffer, Buffer] = {}
    # A library call writes into its result buffer directly: its geometry must not change.
    rigid = {b for call in program.library_calls for b in call.writes}
    for k, step in enumerate(program.steps):
        stores = [s for kernel in step.kernels for s in kernel.stores]
        for store in stores:
            new = store.buffer
            if first[new] != k or new.kind not in (Kind.TEMP, Kind.OUTPUT):
                continue
            for old in dict.fromkeys(n.arg for n in loads([store.value])):
                if last[old] != k or old in renamed or not _fits(old, store, stores):
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
    steps = (
        s.renamed(renamed) if any(b in renamed for b in s.buffers) else s for s in program.steps
    )
    kept = (s.keeping(lambda store: not store.copies_itself) for s in steps)
    return replace(program, steps=tuple(s for s in kept if s is not None))


def _fits(old: Buffer, store: Store, stores: Sequence[Store]) -> bool:
    """Whether `store` may overwrite `old`: it reads `old` only at the element that it writes."""
    new = store.buffer
    if old.kind is not Kind.TEMP or old.dtype is not new.dtype or old.device != new.device:
        return False
    if size_in_bytes(old) != size_in_bytes(new) or sum(s.buffer == new for s in stores) > 1:
        return False
    if any(n.arg == old for s in stores if s is not store for n in loads([s.value, s.offset])):
        return False
    return all(not u.around and u.load.srcs[0] is store.offset for u in uses_in(store, [old]))
