"""Decides a branch on a tensor: by its value if that is known, or by an assumption that the graph checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from frameloom.capture.speculation.branch_prediction import predicted_truth
from frameloom.capture.speculation.branch_speculation import speculated_truth
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue


def decide(t: Tracer, condition: TensorValue) -> bool:
    """Returns the truth of a tensor; breaks if it is neither known nor assumed."""
    known = condition.known_truth(t)
    if known is not None:
        return known
    if condition.fake.dtype is torch.uint64:  # PyTorch reads an int64, and refuses larger numbers
        raise Break("data_dependent_branch", "bool(tensor) of uint64")
    speculated = speculated_truth(t, condition)
    if speculated is not None:
        return speculated
    return predicted_truth(t, condition, Break("data_dependent_branch", "bool(tensor)"))
