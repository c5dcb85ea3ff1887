"""Lets torchvision be imported beside a PyTorch whose build its C library does not fit.

`pip install torchvision` gives a CUDA build, whose library cannot be loaded beside a PyTorch for the CPU; importing it then fails because the
operators it describes are missing.  Declared here they exist, without a kernel: no model of the zoo calls them.
"""

import importlib.util
import os

import torch

DECLARED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[torch.library.Library] = []


def declare() -> None:
    """Declare the operators where the library cannot bring them.  To be called before anything imports torchvision."""
    spec = importlib.util.find_spec("torchvision")
    if _libraries or spec is None or spec.origin is None:
        return
    native = os.path.join(os.path.dirname(spec.origin), "_C.so")
    try:
        torch.ops.load_library(native)
    except (ImportError, OSError):
        library = torch.library.Library("torchvision", "DEF")
        for schema in DECLARED:
            library.define(schema)
        _libraries.append(library)
