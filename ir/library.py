"""Properties of library calls (ATen overloads) that lowering, fusion and the code generator share."""

from __future__ import annotations

import weakref
from typing import Any

import torch

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

# Ops by which processes communicate.  All processes have to call them, in one order.
_COLLECTIVE = ("_c10d_functional.", "_c10d_functional_autograd.", "c10d.")


def is_collective(target: str) -> bool:
    return target.startswith(_COLLECTIVE)
