"""Names that lines of Triton text define, and their scope."""

from __future__ import annotations

from dataclasses import dataclass, field

from frameloom.codegen.schedule.tile_gpu import Dimension
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node


@dataclass(frozen=True, slots=True)
class Value:
    """The name of a node's value, its dtype as computed (I32 for a narrow index), and whether it is a bare
    literal."""

    text: str
    dtype: DType
    literal: bool = False


@dataclass(slots=True)
class Scope:
    """Lines and the names that they define."""

    indent: int
    lines: list[str] = field(default_factory=list)
    names: dict[Node, Value] = field(default_factory=dict)
    axes: dict[Axis, str] = field(default_factory=dict)
    groups: dict[tuple[str, int], Dimension] = field(
        default_factory=dict
    )  # triton/random_numbers.py
