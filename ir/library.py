"""ShapeEnv about library calls (ATen overloads) that lowering, fusion and the code generator share."""

from __future__ import annotations

import weakref
from typing import Any

import torch

# A step of our own among them: (device, increment) -> seed and offset of the device's generator, which goes on by that much.
DRAW = "frameloom.draw.default"
# And one that takes the ints out of a vector: the symbols of its result's shape are these.
READ = "frameloom.read.default"
OWN = (DRAW, READ)
# Views that are conjugated or negated when they are read; twice, and they are what they were.
LAZY: dict[str, Any] = {"conj": torch._conj, "neg": torch._neg_view}
# Calls of what Python has made for one graph, by name.
CALLS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

# Calls that write into a given buffer: the result lives in the arena or in a fresh output.
OUT_FORMS: dict[str, str] = {
    "aten.mm.default": "aten.mm.out",
    "aten.bmm.default": "aten.bmm.out",
    "aten.addmm.default": "aten.addmm.out",
    "aten.baddbmm.default": "aten.baddbmm.out",
}

# Ops by which processes talk to each other, which all have to make, in one order.
_COLLECTIVE = ("_c10d_functional.", "_c10d_functional_autograd.", "c10d.")


def is_collective(target: str) -> bool:
    return target.startswith(_COLLECTIVE)
