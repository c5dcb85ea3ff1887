"""Layouts of gradients that the `backward` of a Function can see.

It is interpreted once, for gradients with the layouts of the results; a backward pass may bring other
layouts. Tensors whose layout it has read, or that it has made contiguous, are pinned: if a pass has
another layout there, it gets a copy with the layout of the capture (`autograd/gradient_layouts.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.autograd.gradient_layouts import PINNED
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs, knows
from frameloom.capture.library import interpreted
from frameloom.capture.recording.captured_graph import behind
from frameloom.capture.symbolic.layout_assumptions import LAYOUT_QUERIES
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.values.base import Value
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

ALIAS = torch.ops.aten.alias.default
LAYOUT_READ = "looked at"  # on an alias that later nodes must read


@knows(torch.Tensor.contiguous, least=1, most=1, keywords="memory_format")
def _contiguous(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Captures `contiguous`. For a tensor computed from a gradient, an alias in the graph marks that a copy
    may be needed: gradients may have another layout than in the capture."""
    result, given = t.torch_call(torch.Tensor.contiguous, args, kwargs), t.look(args[0])
    if not isinstance(given, TensorValue) or not isinstance(result, TensorValue):
        return result
    if result.fake is given.fake and _is_of_gradients(t, given):
        result = t.torch_call(ALIAS, [result], {})
        _node(t, result).meta[PINNED] = True
    return result


def _layout_query(fn: Any) -> Any:
    def call(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        result, given = t.torch_call(fn, args, kwargs), t.look(args[0])
        if _is_of_gradients(t, given):
            if fn is not torch.Tensor.is_contiguous or not t.look(result).truth(t):
                raise Break("autograd_function", "a backward that reads the strides of gradients")
            seen = _node(t, t.torch_call(ALIAS, [given], {}))
            # a tensor that is not contiguous is copied
            seen.meta[PINNED] = seen.meta[LAYOUT_READ] = True
        return result

    return call


for _fn in LAYOUT_QUERIES:
    FUNCTIONS[_fn] = _layout_query(_fn)


def _node(t: Tracer, value: Value) -> torch.fx.Node:
    return current(value.fake, t.recorder)  # type: ignore[attr-defined, no-any-return]


def _is_of_gradients(t: Tracer, value: Value) -> bool:
    """Whether a tensor is computed, in a `backward`, from its gradient arguments."""
    frame = t.frame
    while frame is not None and frame.code is not interpreted.backward_of.__code__:
        frame = frame.parent
    if frame is None or not isinstance(value, TensorValue):
        return False
    given = [v for v in t.items(t.look(frame.slots["gradients"])) if isinstance(v, TensorValue)]
    nodes = behind([_node(t, value)], lambda node: node.all_input_nodes)
    return any(_node(t, v) in nodes for v in given)


def read_pinned(inside: Sequence[torch.fx.Node], ends: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:  # fmt: skip
    """Makes the nodes `inside` that come after a read of a tensor's layout use the pinned alias; returns
    `ends` with the same replacement."""
    ends = [*ends]
    for place, node in enumerate(inside):
        if node.meta.pop(LAYOUT_READ, False):
            of: Any = node.args[0]
            for later in inside[place + 1 :]:
                later.replace_input_with(of, node)
            ends = [node if end is of else end for end in ends]
    return ends
