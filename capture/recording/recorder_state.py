"""What a recorder knows besides its graph: modes, the current call, autograd's history, and data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.tensors.cast_cache import autocast_devices

if TYPE_CHECKING:
    from frameloom.capture.recording.unbacked_sizes import Result
    from frameloom.capture.recording.written_parts import WrittenPart
    from frameloom.capture.tensors.fake import Fake
    from frameloom.capture.tensors.functionalize import Memory
    from frameloom.ir.symbolic.expr import Int


@dataclass
class GraphModes:
    """The modes under which the graph runs."""

    default_dtype: torch.dtype = field(default_factory=torch.get_default_dtype)
    grad: bool = field(default_factory=torch.is_grad_enabled)
    around: list[str] = field(default_factory=autocast_devices)  # devices under autocast


@dataclass
class CurrentCall:
    """The torch call that is being recorded."""

    where: str = ""
    site: Any = None  # its place (dead_calls.py)
    function: Any = None
    last: Any = None  # node before it
    outs: set[int] = field(default_factory=set)  # its out= arguments that an op has written
    old: int = 0  # how many Fakes there were before it
    # C functions that return settings on which it depends
    relies_on: dict[Any, None] = field(default_factory=dict)
    inference: bool = False  # whether it runs in inference mode
    autocast: list[str] = field(default_factory=list)  # devices for which it runs under autocast
    # Whether PyTorch takes the same path for plain tensors without gradients.
    decomposes_as_eager: bool = True
    is_followed: bool = False  # whether autograd follows it
    assumes: bool = False  # whether it is recorded under an assumption
    refuses_unbacked: bool = False  # whether it may not make unbacked sizes

    def enter(self, function: Any) -> None:
        """Sets what is recorded, at no place of the program."""
        self.function, self.where = function, ""


@dataclass
class HistoryState:
    """What matters to autograd."""

    below_autograd: bool = False  # whether a `__torch_dispatch__` of the program runs
    # The memory budget for saved tensors (capture/autograd/partition.py).
    budget: int | float | None = None
    # whether code after a break may write unnoticed before a backward pass
    writes_unnoticed: bool = False
    # Whether a write changed a tensor that has a history without changing that history.
    hidden_writes: bool = False
    data_sites: list[Any] = field(default_factory=list)  # where the program took `.data` of tensors
    # The memory of a tensor that gets other data right after the graph: autograd notices that in the saved
    # tensors.
    replaced: Any = None
    # Per memory that autograd saves in the recording: the memory that it saves in eager, and its version at
    # that time.
    instead: dict[Any, tuple[Memory, int]] = field(default_factory=dict)
    # Per sequence number of an autograd node that puts a write to a view into its base.
    written_parts: dict[int, WrittenPart] = field(default_factory=dict)
    # Inputs that the program turns into leaves of autograd (leaves.py).
    turned_on: dict[int, Any] = field(default_factory=dict)
    zeros: dict[int, Fake] = field(default_factory=dict)  # tensors without memory
    # calls of autograd Functions, as Derivatives
    functions: list[Any] = field(default_factory=list)
    notes_nodes: bool = False  # whether to note which autograd nodes compute something


@dataclass
class FromData:
    """What only the data of tensors decides."""

    looks_at_data: bool = False  # whether the recorded ops depend on the data of tensors
    unbacked: list[Any] = field(default_factory=list)  # where unbacked sizes are made
    # numbers of non-zero elements
    counted: dict[Any, tuple[Int, Result]] = field(default_factory=dict)
    # their indices, where the program does not see them
    places: dict[Any, Fake] = field(default_factory=dict)


@dataclass
class ConstantNodes:
    """Nodes that depend on no input (tensors/constant_folding.py)."""

    known: dict[torch.fx.Node, Any] = field(default_factory=dict)  # their values
    # nodes that are known not to be constant
    unknown: set[torch.fx.Node] = field(default_factory=set)
