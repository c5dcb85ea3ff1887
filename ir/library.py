"""Properties of library calls (ATen overloads) that lowering, fusion and the code generator share."""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

import torch

from frameloom.errors import FrameloomError

# A step of our own: (device, increment) -> seed and offset of the device's generator; the offset then grows
# by increment.
DRAW = "frameloom.draw.default"
# A step of our own that reads the ints of a vector: they are the values of the symbols in its result's shape.
READ = "frameloom.read.default"
OWN = (DRAW, READ)
# Lazy operations, which are applied when a view is read (conjugation, negation).  Each is its own inverse.
LAZY: dict[str, Any] = {"conj": torch._conj, "neg": torch._neg_view}
# Python callables that were made for one graph, by name.
CALLS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

# Calls that write into a given buffer: the result is in the arena or in a fresh output.
OUT_FORMS: dict[str, str] = {
    "aten.mm.default": "aten.mm.out",
    "aten.bmm.default": "aten.bmm.out",
    "aten.addmm.default": "aten.addmm.out",
    "aten.baddbmm.default": "aten.baddbmm.out",
}

# PyTorch's function for this op checks indices, which takes 10 kernels on a GPU; the other call, with an argument
# more, does not.
UNSAFE_PUT = "aten._unsafe_index_put.default"
UNCHECKED_PUT = "aten._index_put_impl.default"

# Ops by which processes communicate.  All processes have to call them, in one order.
_COLLECTIVE = ("_c10d_functional.", "_c10d_functional_autograd.", "c10d.")


def is_collective(target: str) -> bool:
    return target.startswith(_COLLECTIVE)


@functools.cache
def overload(target: str) -> Any:
    """Returns the callable for a name such as "aten.add.Tensor"."""
    op: Any = torch.ops
    for part in target.split("."):
        op = getattr(op, part, None)
        if op is None:
            raise FrameloomError(f"PyTorch {torch.__version__} has no operator {target}")
    return op


class Effects(NamedTuple):
    mutates: bool  # writes to its tensor arguments
    beyond_results: bool  # does more than return results


def effects(target: str) -> Effects:
    """Returns what a library call does besides returning results."""
    return Effects(False, False) if target in CALLS else _effects(target)


@functools.cache
def _effects(target: str) -> Effects:
    if target in OWN:
        return Effects(False, target == DRAW)
    try:
        op = overload(target)
    except FrameloomError:
        return Effects(True, True)
    # native_batch_norm updates its running statistics, but its schema does not say so.
    mutates = op._schema.is_mutable or target == "aten.native_batch_norm.default"
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    has_other_effect = is_random or not op._schema.returns or is_collective(target)
    return Effects(mutates, mutates or has_other_effect)
