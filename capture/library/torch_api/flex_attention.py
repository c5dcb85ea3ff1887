"""`flex_attention` and masks made of functions: the program's functions of indices are in the graph.

The checks of PyTorch's own function are interpreted. Its kernels are replaced by tensor operations
(`interpreted_attention.py`), with the program's functions mapped over the indices as `torch.func.vmap` does.
The module is slow to import, and a program that calls it has imported it: so the rules go by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.fx.traceback

from frameloom.capture.interpreter import calls
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows, knows_kind
from frameloom.capture.interpreter.wrapped_tensor import refuse_inside
from frameloom.capture.library import interpreted, interpreted_attention
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.library.torch_api.watched import Watched
from frameloom.capture.recording.captured_graph import behind
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.function import FunctionValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

MODULE = "torch.nn.attention.flex_attention"


@knows_kind("flex_attention")
def _flex_attention(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    """A break inside is a break at the call: the rest of PyTorch's function, which has seen that it is
    compiled, does other things without a compiler."""
    if function.real.__module__ != MODULE:
        return None
    return calls.inline(t, function, args, kwargs, resumable=False)


@knows_kind("FlexAttentionHOP.__call__")
def _kernel(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """Eager refuses functions with effects, with errors of its own; and `vmap` of it."""
    refuse_inside(t, "flex_attention(...)")
    watched = Watched(t, args)
    result = interpret(t, interpreted_attention.attention, args[1:], kwargs)
    if watched.changed() is not None:
        raise Break("library_call", "flex_attention(...) of a function with effects")
    return result


@knows(interpreted_attention.needs_no_gradient, least=1, most=1)
def _needs_no_gradient(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    mask = t.look(args[0])
    assert isinstance(mask, TensorValue)
    for node in behind([current(mask.fake, t.recorder)], lambda n: n.all_input_nodes):
        if getattr(node.meta.get("val"), "requires_grad", False):
            raise Break("library_call", "flex_attention(...) with a mask of what needs a gradient")


@knows_kind("mark_static")
def _mark(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    """A note of PyTorch's function for its own compiler."""
    return NONE if t.frame.globals.real.get("__name__") == MODULE else None


@knows_kind("create_mask")
def _create_mask(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    if function.real.__module__ != MODULE:
        return None
    kind_of = t.pinned(function.real.__globals__["_get_mod_type"])
    return interpret(t, interpreted_attention.create_mask, [kind_of, *args], kwargs)


@knows(torch.fx.traceback.annotate, least=1, most=1)
def _annotate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Notes for those who trace with PyTorch's tools."""
    return interpret(t, interpreted.unlabelled, [], {})
