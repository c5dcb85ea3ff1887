"""Moves the checks of a scatter's indices into the scatter.

The indices are read once less; on a GPU, a launch is saved.

The scatter stores nothing for an index that is out of range.  Elements that it stores before the check raises
are stored by eager, too, or are in memory that belongs to the call.
"""

from __future__ import annotations

from dataclasses import replace

from frameloom.ir.node import Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.program import Check, Kernel, Program, Step, Store
from frameloom.ir.scatter import is_scatter
from frameloom.ir.substitute import substitute


def sink_checks(program: Program) -> Program:
    """Returns `program` with such checks in the kernels that scatter."""
    steps: list[Step] = list(program.steps)
    for scatter in filter(is_scatter, program.kernels):
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
    """Whether the kernel checks all positions of the scatter and does nothing else.  The scatter must not
    change what the kernel reads."""
    return set(kernel.reads).isdisjoint(scatter.writes) and all(
        bad_positions(s, scatter.stores[0]) is not None for s in kernel.stores
    )


def _raised_between(steps: list[Step], at: int, here: int) -> list[Check] | None:
    """Returns the checks between the kernel `at` and the scatter `here` that raise for this kernel; None if
    the kernel cannot move there."""
    kernel = steps[at]
    between = steps[min(at, here) + 1 : max(at, here)]
    if at > here:
        read = set(kernel.reads)
        return [] if all(read.isdisjoint(s.writes) for s in between) else None
    flags = set(kernel.writes)
    raising = [s for s in between if isinstance(s, Check)]
    if any(s.buffer not in flags for s in raising):
        return None
    others = [s for s in between if s not in raising]
    return raising if all(s.kernels and not s.writes_input for s in others) else None


def bad_positions(flag: Store, scatter: Store) -> Node | None:
    """Returns the condition that a store checks at each position of the scatter; None if it does something
    else."""
    n = flag.value
    if flag.axes or flag.scatter is not None or n.op is not Op.REDUCE or n.arg.kind != "any":
        return None
    if [a.extent for a in n.arg.axes] != [a.extent for a in scatter.axes]:
        return None
    return substitute(n.srcs[0], dict(zip(n.arg.axes, map(axis, scatter.axes), strict=True)))
