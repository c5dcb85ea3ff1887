"""Writes a captured graph as a standalone script: graph_runnable.py of the dump folder.

In: the captured graph.  Out: text.  The script makes random inputs of the same shapes, strides and dtypes,
runs the graph plainly and jitted, and compares.  Large constants are replaced by random ones: the script
shows the code, not the model.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from frameloom.capture.recording.captured_graph import CapturedGraph

MANY_ELEMENTS = 64  # constants with at most so many elements are written out

HEAD = """\
# Runs one captured graph plainly and jitted, and compares.
import math
import operator
import _operator
from math import inf, nan
import torch
from torch import device
import frameloom


def tensor(shape, strides, dtype):
    size = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 0
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(size).to(dtype).as_strided(shape, strides)
    return torch.randint(0, 2, (size,)).to(dtype).as_strided(shape, strides)

"""

TAIL = """

def inputs():
    torch.manual_seed(0)
    return [{inputs}]


with torch.no_grad():
    plain = forward(*inputs())
    jitted = frameloom.jit(forward)(*inputs())
torch.testing.assert_close(jitted, plain, equal_nan=True)
print(f"equal: {{len(plain)}} results")
"""


def runnable(captured: CapturedGraph) -> str:
    """Returns the script."""
    gm = captured.gm
    body = gm.graph.python_code("self").src.strip()
    body = re.sub(r"^def forward\(self(, )?", "def forward(", body, count=1, flags=re.MULTILINE)
    names = sorted({str(n.target) for n in gm.graph.nodes if n.op == "get_attr"})
    constants = [f"    {name} = {_constant(getattr(gm, name))}" for name in names]
    if constants:
        body = body.replace("self.", "constants.")
        body = "\n".join(["class constants:", *constants]) + "\n\n\n" + body
    inputs = "".join(f"\n        {_random(example)}," for example in captured.examples)
    return HEAD + "\n" + body + "\n" + TAIL.format(inputs=inputs + "\n    " if inputs else "")


def _random(tensor: Any) -> str:
    if isinstance(tensor, int | float):
        return repr(tensor)
    return f"tensor({tuple(tensor.shape)}, {tensor.stride()}, {tensor.dtype})"


def _constant(tensor: Any) -> str:
    if isinstance(tensor, torch.Tensor) and tensor.numel() <= MANY_ELEMENTS:
        return f"torch.tensor({tensor.tolist()}, dtype={tensor.dtype})"
    return _random(tensor)
