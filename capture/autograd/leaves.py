"""Leaves of autograd's that captured code makes: `x.detach().requires_grad_()`, `torch.zeros(3, requires_grad=True)`.

Histories may begin there as long as nobody outside sees the tensor itself.  One that is seen outside, or to which alone the history of a result
leads, is made by plain Python: by a break where it was made, so that it is an input of what follows.

A tensor that is given to captured code, and of which that has computed nothing yet, is made a leaf right before the graph is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import is_inference
from frameloom.capture.tensors.schema import fakes_in, may_raise
from frameloom.capture.values.base import Avoid
from frameloom.errors import Break, Skip, first_line

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import FrameState
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.captured_graph import CapturedGraph
    from frameloom.capture.values.tensor import TensorValue


def is_leaf(fake: Fake) -> bool:
    return fake.requires_grad and fake.is_leaf and not has_leaf_behind(fake)


def has_leaf_behind(fake: Fake) -> bool:
    """Of a tensor that requires gradients, a view without history calls itself a leaf."""
    view = fake.view_of
    return view is not None and not view.grad and view.parent.requires_grad


def check_given_leaves(t: Tracer, result: Any) -> None:
    """A view that is made without gradients says of itself what its base does.  That is the input that it is a view of, unless that is a view itself."""
    if type(result) is Fake and result.memory.input is None:
        return  # most often
    for fake in fakes_in((result,)):
        given = fake.memory.input
        if given is None or not fake.requires_grad or not has_leaf_behind(fake):
            continue
        origin, tensor, leaf = t.recorder.inputs[given]
        if not leaf.is_leaf:
            continue
        if tensor._is_view():
            raise Break("autograd", "a view, without gradients, of a leaf that is a view")
        t.guards.add(origin.child("attr", "_base"), "is", None)


def real_is_leaf(tensor: torch.Tensor) -> bool:
    """Autograd refuses to look at some views that were written to."""
    try:
        return tensor.is_leaf
    except RuntimeError as error:
        raise Break("autograd", first_line(error)) from error


def begins_history(tensor: torch.Tensor) -> bool:
    """Of a tensor that is given: whether it is a leaf in its own right, and no view that only says what its base does."""
    return _capture.accumulates(tensor) if tensor.requires_grad else real_is_leaf(tensor)


def guard_leaf(t: Tracer, value: TensorValue) -> None:
    """A given tensor that requires gradients begins a history in every call, or in none."""
    assert value.origin is not None
    if begins_history(value.real) and value.real.requires_grad:
        t.guards.add(value.origin, "accumulates")
    elif real_is_leaf(value.real):
        t.guards.add(value.origin.child("attr", "is_leaf"), "equal", True)
    else:
        t.guards.add(value.origin, "has_history")


def require_gradient(t: Tracer, value: TensorValue) -> None:
    """`requires_grad_()` on a tensor without."""
    fake: Any = value.fake
    possible = fake.is_floating_point() or fake.is_complex()
    if not possible or is_inference(fake):
        raise Break("autograd", "tensor.requires_grad_(...)")
    if value.real is None:
        note_leaf(t, fake)
    else:
        _note_given(t, value, fake)
    fake.requires_grad_()
    t.on_undo(partial(fake.requires_grad_, False))


def _note_given(t: Tracer, value: TensorValue, fake: Any) -> None:
    """What comes before may neither depend on the tensor nor raise: it comes behind, there."""
    assert t.frame is not None
    site, recorder = (t.frame.code, t.frame.at.index), t.recorder
    is_used = fake.memory.version or fake.node.users or fake.grad_fn is not None
    views = any(f.view_of is not None and f.view_of.parent is fake for f in recorder.fakes)
    avoided = t.session.forced or t.session.is_avoided(*site) or value.origin is None
    if avoided or is_used or views or any(map(may_raise, recorder.graph.nodes)):
        raise Break("autograd", "tensor.requires_grad_(...)")
    recorder.turned_on[id(fake)] = fake, value.origin, site
    t.on_undo(partial(recorder.turned_on.pop, id(fake)))


def turning_on(
    t: Tracer, graph: CapturedGraph | None, compiled: Callable[..., Any]
) -> Callable[..., Any]:
    """The graph, in front of whose call inputs are made to require gradients."""
    places = []
    for _, origin, site in t.recorder.turned_on.values():
        if graph is None or t.arrays or origin not in graph.inputs:
            raise Avoid(site)
        places.append(graph.inputs.index(origin))

    def run(*inputs: Any) -> Any:
        for place in places:
            inputs[place].requires_grad_()
        try:
            return compiled(*inputs)
        except _capture.RunPlainly:
            for place in places:
                inputs[place].requires_grad_(False)
            raise

    return run if places else compiled


def note_leaf(t: Tracer, fake: Fake) -> None:
    """The current instruction makes `fake` a leaf."""
    assert t.frame is not None
    site = (t.frame.code, t.frame.at.index)
    if t.session.forced or t.session.is_avoided(*site):
        raise Break("autograd", "a tensor made to require gradients that is needed outside")
    t.leaves[id(fake)] = fake, site
    t.on_undo(partial(t.leaves.pop, id(fake)))


def check_that_leaves_stay_inside(t: Tracer, outputs: Sequence[TensorValue]) -> None:
    """Raises Avoid for one that is an output, or seen through a view of it."""
    if not t.leaves:
        return
    for value in outputs:
        fake: Any = value.fake
        while fake is not None:
            if id(fake) in t.leaves:
                raise Avoid(t.leaves[id(fake)][1])
            fake = fake.view_of and fake.view_of.parent


def check_views_of_later_leaves(
    outputs: Sequence[TensorValue], states: Sequence[FrameState]
) -> None:
    """Raises Skip where a tensor may begin a history behind the graph, of which that gives a view that something was written to: autograd has
    such a view follow its base then, and tells it by the writes that it counts since the view was made.  A graph makes it behind them."""
    if not any("requires_grad_" in state.code.co_names for state in states):
        return
    for value in outputs:
        view: Any = value.fake.view_of
        if view is not None and view.version < value.fake.memory.version:
            raise Skip("a view that was written to, and requires_grad_() behind it")


def leaves_or(t: Tracer, cause: Exception) -> Exception:
    """What to raise where the history of a result cannot be kept for `cause`: perhaps it can with the leaves as inputs."""
    made = [*t.leaves.values(), *t.recorder.turned_on.values()]
    return Avoid(made[0][-1]) if made else cause
