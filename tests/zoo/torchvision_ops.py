"""Lets torchvision be imported beside a PyTorch whose build its C library does not fit.

`pip install torchvision` gives a CUDA build, whose library asks for PyTorch's CUDA libraries. Beside a PyTorch for the
CPU it gets empty ones: its kernels for the CPU (nms, roi_align) call nothing of them. Where that fails, too, the
operators are declared without a kernel, so that torchvision can be imported; models of detection then do not run.
"""

import ctypes
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

import torch

DECLARED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
EMPTY = ("libc10_cuda.so", "libtorch_cuda.so")
_libraries: list[torch.library.Library] = []


def declare() -> None:
    """Load or declare torchvision's operators. To be called before anything imports torchvision."""
    spec = importlib.util.find_spec("torchvision")
    if _libraries or spec is None or spec.origin is None:
        return
    native = os.path.join(os.path.dirname(spec.origin), "_C.so")
    for load in (torch.ops.load_library, load_beside_empty):
        try:
            return load(native)
        except (ImportError, OSError, subprocess.CalledProcessError):
            continue
    library = torch.library.Library("torchvision", "DEF")
    for schema in DECLARED:
        library.define(schema)
    _libraries.append(library)


def load_beside_empty(native: str) -> None:
    """Load the library after empty ones in place of PyTorch's CUDA libraries: what it takes from these is zeros."""
    listed = ["nm", "-D", "--undefined-only", native]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    wanted = [name for name in names if "4cuda" in name and "@" not in name]
    text = "".join(f"char {name}[64];" for name in wanted)
    with tempfile.TemporaryDirectory() as folder:
        for name in EMPTY:
            built = str(Path(folder, name))
            command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", built, f"-Wl,-soname,{name}"]
            subprocess.run(command, input=text.encode(), check=True, capture_output=True)
            ctypes.CDLL(built, ctypes.RTLD_GLOBAL)
    torch.ops.load_library(native)
