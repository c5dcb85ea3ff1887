"""What a capture knows besides its values: its options, the assumptions it makes, and backward passes in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frameloom.capture.autograd.backward_python import DeferredCode
    from frameloom.capture.interpreter.wrapped_tensor import Transform

Site = tuple[Any, int]  # a code object and the index of an instruction


@dataclass
class CaptureOptions:
    """What this capture may do."""

    follows_iterators: bool = False  # whether existing iterators are followed
    follows_numbers: bool = False  # whether dynamic numbers become inputs
    follows_lengths: bool = False  # whether calls with new container lengths may run plainly
    follows_elements: bool = False  # whether numbers in CPU tensors become inputs
    may_speculate: bool = False  # whether branch speculation is allowed
    resumed: bool = False  # the captured function is a resume function
    ignores_breaks: bool = False  # whether calls of `graph_break` do nothing


@dataclass
class Speculation:
    """Where the capture relies on what a later call may not do; that call then bails out."""

    # Sites that need calls which can bail out: those with an assumption, and those that may raise behind a
    # change or inside a `try` that handles it.
    rerun_sites: list[Site] = field(default_factory=list)
    fallible_sites: list[Site] = field(default_factory=list)
    # Torch calls whose exceptions the program handles: refused ones break if no call can bail out.
    handled_sites: set[Site] = field(default_factory=set)
    speculated: list[Any] = field(default_factory=list)  # branches (branch_speculation.py)
    choices: dict[Any, bool] = field(default_factory=dict)  # branches (branch_prediction.py)
    chance: float = 1.0  # estimated probability that all choices are predicted right


@dataclass
class BackwardState:
    """What the capture knows of autograd: backward passes, leaves and checkpoints of the program."""

    regions: list[bool] = field(default_factory=list)  # checkpoints around here: whether reentrant
    transforms: list[Transform] = field(default_factory=list)  # of torch.func, around here
    deferred_code: list[DeferredCode] = field(default_factory=list)  # code of the backward pass
    last_backward: int = 0  # sequence number of autograd's next node after it; 0 without one
    last_backward_site: Any = None  # the site of that call
    gradients_set: set[int] = field(default_factory=set)  # fakes that became a tensor's `.grad`
    leaves: dict[int, Any] = field(default_factory=dict)  # leaf tensors made here (leaves.py)
    underived: list[Any] = field(default_factory=list)  # sites of calls that lack a derivative
