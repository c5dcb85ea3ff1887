"""Where a graph break is an error although the jitted function itself may break.

A function inside was jitted with fullgraph=True, or the program has set
`torch._dynamo.error_on_graph_break(True)`. That is a global variable of PyTorch's compiler
(library/torch_api/graph_break_marks.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from frameloom.capture.values.const import ConstValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import FrameState
    from frameloom.capture.interpreter.tracer import Tracer

VARIABLE = "_error_on_graph_break"


def is_forbidden(t: Tracer, states: Sequence[FrameState]) -> bool:
    """`states`: the frames at the break, the jitted function's own first."""
    if any(state.code in t.whole for state in states[1:]):
        return True
    compiler = vars(torch).get("_dynamo")  # `torch` would import it
    if compiler is None:
        return False
    table = vars(compiler.utils)
    written = t.written_global(table, VARIABLE)
    if isinstance(written, ConstValue):
        return bool(written.real)
    return bool(table.get(VARIABLE, False))
