"""Tensors inside a captured graph that get hooks there (`register_hook`, `retain_grad`).

A hook gets the whole gradient of a tensor, and its return value becomes the gradient of the tensor's
operands. The graph is one node of autograd, so plain Python makes such a tensor, by a graph break there: then
the tensor has a node of its own, and is an input of the next graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.base import Value
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

HOOKING = frozenset(["register_hook", "retain_grad"])


def check_not_hooked(t: Tracer) -> None:
    """Called at the start of a torch call; breaks if its result gets hooks."""
    assert t.frame is not None
    if t.session.is_avoided(t.frame.code, ~t.frame.at.index):
        raise Break("autograd", "a tensor that gets hooks")


def note_site(t: Tracer, result: Any) -> None:
    assert t.frame is not None
    for made in result if isinstance(result, list | tuple) else (result,):
        if isinstance(made, Fake) and made.requires_grad:
            # Not the instruction itself, where other calls are avoided.
            made.made_at = t.frame.code, ~t.frame.at.index


def check_hooking(t: Tracer, name: str, args: list[Value]) -> None:
    """Avoids the call that made the tensor, if `name` is a hooking method, which plain Python calls."""
    tensor = t.look(args[0]) if args and name in HOOKING else None
    if not isinstance(tensor, TensorValue) or tensor.real is not None or t.session.forced:
        return
    site = getattr(tensor.fake, "made_at", None)  # a wrapper of a function transform has none
    if site is not None and not t.session.is_avoided(*site):
        raise Avoid(site)
