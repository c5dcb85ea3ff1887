"""What the lowering of a graph keeps of its results besides their buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch.fx

from frameloom.ir.lower.table import Ref
from frameloom.ir.program import Buffer, Kernel, View


@dataclass
class Layouts:
    """How results lie in memory, where that is not what the program sees."""

    has_internal_layouts: bool = False  # whether a tensor may have such a layout
    channels_last: frozenset[torch.fx.Node] = frozenset()  # convolutions on such tensors
    packed: dict[Any, View] = field(default_factory=dict)  # constants in a library's own layout
    # Results computed together with an earlier node.
    precomputed: dict[torch.fx.Node, Ref] = field(default_factory=dict)
    # Lazily conjugated or negated views: their memory as it is.
    raw: dict[torch.fx.Node, Ref] = field(default_factory=dict)
    # Copies with these strides.
    copies: dict[tuple[Ref, tuple[int, ...]], Ref] = field(default_factory=dict)


@dataclass
class Writes:
    """What is written to inputs."""

    wrote_early: bool = False  # whether an input is written as early as in the program
    written: set[Buffer] = field(default_factory=set)
    delayed: dict[Any, list[Kernel]] = field(default_factory=dict)  # kernels of a write-back
    # Writes to CPU inputs in a graph on a GPU: the view of the input, the new value, and the node that
    # writes.
    cpu_writes: list[tuple[View, View, torch.fx.Node]] = field(default_factory=list)
