"""Checks of a scatter's indices, made while it goes through them: one reading of the indices less, on a GPU one launch.

What is out of range is not stored; what is stored before the check raises is stored by eager, too, or in memory of the call.
"""

from __future__ import annotations

from dataclasses import replace

from frameloom.ir.node import Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.passes.memory import reads_of, writes_of
from frameloom.ir.program import Check, Kernel, Kind, Program, Step, Store
from frameloom.ir.scatter import is_scatter
from frameloom.ir.substitute import substitute


def unbacked_checks(program: Program) -> Program:
    """`program` with such checks in the kernels that scatter."""
    steps: list[Step] = list(program.steps)
    for scatter in [s for s in steps if isinstance(s, Kernel) and is_scatter(s)]:
        here = steps.index(scatter)
        for at, step in enumerate(steps):
            if isinstance(step, Kernel) and _checks(step, scatter):
                raising = _raised_between(steps, at, here)
                if raising is not None:
                    origin = tuple(dict.fromkeys((*step.origin, *scatter.origin)))
                    stores = (*scatter.stores, *step.stores)
                    both = replace(scatter, stores=stores, origin=origin)
                    before = [s for s in steps[:here] if s is not step and s not in raising]
                    after = [s for s in steps[here + 1 :] if s is not step]
                    steps = [*before, both, *raising, *after]
                    break
    return program if len(steps) == len(program.steps) else replace(program, steps=tuple(steps))


def _checks(kernel: Kernel, scatter: Kernel) -> bool:
    """Whether it checks all positions of the scatter, and nothing else; what it reads has to be the same before each store as behind the last."""
    return set(reads_of(kernel)).isdisjoint(writes_of(scatter)) and all(
        bad_positions(s, scatter.stores[0]) is not None for s in kernel.stores
    )


def _raised_between(steps: list[Step], at: int, here: int) -> list[Check] | None:
    """What raises for the kernel `at` before the scatter `here`; None if the kernel cannot go there."""
    kernel = steps[at]
    between = steps[min(at, here) + 1 : max(at, here)]
    if at > here:
        read = set(reads_of(kernel))
        return [] if all(read.isdisjoint(writes_of(s)) for s in between) else None
    flags = set(writes_of(kernel))
    raising = [s for s in between if isinstance(s, Check)]
    if any(s.buffer not in flags for s in raising):
        return None
    others = [s for s in between if not isinstance(s, Check)]
    return raising if all(map(_is_private, others)) else None


def _is_private(step: Step) -> bool:
    return isinstance(step, Kernel) and all(s.buffer.kind is not Kind.INPUT for s in step.stores)


def bad_positions(flag: Store, scatter: Store) -> Node | None:
    """What a store checks at each position of the scatter; None if it does something else."""
    n = flag.value
    if flag.axes or flag.scatter is not None or n.op is not Op.REDUCE or n.arg.kind != "any":
        return None
    if [a.extent for a in n.arg.axes] != [a.extent for a in scatter.axes]:
        return None
    return substitute(n.srcs[0], dict(zip(n.arg.axes, map(axis, scatter.axes), strict=True)))
