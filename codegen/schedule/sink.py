"""What a block of the loop tree must compute: a store or a reduction, with the axes that no enclosing loop
binds yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from frameloom.codegen.schedule.loop_nest import Fold
from frameloom.ir.node import Axis, Node
from frameloom.ir.program import Buffer
from frameloom.ir.substitute import substitute


@dataclass(eq=False)
class Sink:
    """A store (buffer, offset set) or a reduction (fold set) with its open axes."""

    axes: tuple[Axis, ...]
    value: Node
    buffer: Buffer | None = None
    offset: Node | None = None
    reduction: Node | None = None  # the REDUCE that this sink computes
    fold: Fold | None = None  # set once its accumulators exist outside this block
    stage: int = 0
    bind: tuple[Axis, ...] = ()  # axes of the next loop; empty for a leaf
    positions: tuple[Axis, ...] = field(
        default=()
    )  # all axes of the reduction, under their current names

    @property
    def roots(self) -> tuple[Node, ...]:
        return (self.value,) if self.offset is None else (self.value, self.offset)

    def renamed(self, mapping: dict[Axis, Node], axes: tuple[Axis, ...]) -> Sink:
        offset = None if self.offset is None else substitute(self.offset, mapping)
        names = tuple(mapping[a].arg if a in mapping else a for a in self.positions)
        return replace(
            self, axes=axes, value=substitute(self.value, mapping), offset=offset, positions=names
        )
