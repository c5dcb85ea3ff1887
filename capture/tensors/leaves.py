"""Leaves of autograd that captured code makes: `x.detach().requires_grad_()`, `torch.zeros(3,
requires_grad=True)`.

Histories may begin there as long as the tensor itself is not visible outside. If it is visible, or is the
only leaf that the history of a result leads to, plain Python makes it: by a graph break where it was made, so
that it is an input of the next graph.

A tensor that is an argument of captured code, and from which the code has computed nothing yet, is made a
leaf right before the graph is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import is_inference
from frameloom.capture.tensors.schema import fakes_in, may_raise
from frameloom.errors import Avoid, Break, Skip, first_line

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import FrameState
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.captured_graph import CapturedGraph
    from frameloom.capture.values.tensor import TensorValue


def is_leaf(fake: Fake) -> bool:
    return fake.requires_grad and fake.is_leaf and not has_leaf_behind(fake)


def has_leaf_behind(fake: Fake) -> bool:
    """Whether it is a view without history of a tensor that requires gradients; such a view reports that it
    is a leaf."""
    view = fake.view_of
    return view is not None and not view.grad and view.parent.requires_grad


def check_given_leaves(t: Tracer, result: Any) -> None:
    """Guards views that are made without gradients: they report what their base reports. The base is the
    input that they are views of, unless that is a view itself."""
    if type(result) is Fake and result.memory.input is None:
        return  # the most frequent case
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
    """Returns `tensor.is_leaf`. Autograd refuses the query for some views that were written to."""
    try:
        return tensor.is_leaf
    except RuntimeError as error:
        raise Break("autograd", first_line(error)) from error


def begins_history(tensor: torch.Tensor) -> bool:
    """Whether an input is a leaf in its own right, and not a view that only reports what its base does."""
    return _capture.accumulates(tensor) if tensor.requires_grad else real_is_leaf(tensor)


def guard_leaf(t: Tracer, value: TensorValue) -> None:
    """Guards that an input that requires gradients begins a history in every call, or in none."""
    assert value.origin is not None
    if begins_history(value.real) and value.real.requires_grad:
        t.guards.add(value.origin, "accumulates")
    elif real_is_leaf(value.real):
        t.guards.add(value.origin.child("attr", "is_leaf"), "equal", True)
    else:
        t.guards.add(value.origin, "has_history")


def require_gradient(t: Tracer, value: TensorValue) -> None:
    """Records `requires_grad_()` on a tensor that does not require gradients."""
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
    """Notes an input that becomes a leaf before the graph. Earlier code may not depend on it nor raise,
    because in the compiled call it runs after that."""
    assert t.frame is not None
    site, recorder = (t.frame.code, t.frame.at.index), t.recorder
    is_used = fake.memory.version or fake.node.users or fake.grad_fn is not None
    views = any(f.view_of is not None and f.view_of.parent is fake for f in recorder.fakes)
    avoided = t.session.forced or t.session.is_avoided(*site) or value.origin is None
    if avoided or is_used or views or any(map(may_raise, recorder.graph.nodes)):
        raise Break("autograd", "tensor.requires_grad_(...)")
    recorder.history.turned_on[id(fake)] = fake, value.origin, site
    t.on_undo(partial(recorder.history.turned_on.pop, id(fake)))


def turning_on(
    t: Tracer, graph: CapturedGraph | None, compiled: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a function that makes inputs require gradients, and then calls the graph."""
    places = []
    for _, origin, site in t.recorder.history.turned_on.values():
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
    """Notes that the current instruction makes `fake` a leaf."""
    assert t.frame is not None
    site = (t.frame.code, t.frame.at.index)
    if t.session.forced or t.session.is_avoided(*site):
        raise Break("autograd", "a tensor made to require gradients that is needed outside")
    t.backward.leaves[id(fake)] = fake, site
    t.on_undo(partial(t.backward.leaves.pop, id(fake)))


def check_that_leaves_stay_inside(t: Tracer, outputs: Sequence[TensorValue]) -> None:
    """Raises Avoid for a leaf that is an output, or visible through a view of it."""
    if not t.backward.leaves:
        return
    for value in outputs:
        fake: Any = value.fake
        while fake is not None:
            if id(fake) in t.backward.leaves:
                raise Avoid(t.backward.leaves[id(fake)][1])
            fake = fake.view_of and fake.view_of.parent


def check_views_of_later_leaves(
    outputs: Sequence[TensorValue], states: Sequence[FrameState]
) -> None:
    """Raises Skip where a tensor may begin a history after the graph, and the graph returns a view of it that
    was written to. Autograd then makes the view follow its base; it detects this by the number of writes
    since the view was made. A graph makes the view after the writes."""
    if not any("requires_grad_" in state.code.co_names for state in states):
        return
    for value in outputs:
        view: Any = value.fake.view_of
        if view is not None and view.version < value.fake.memory.version:
            raise Skip("a view that was written to, and requires_grad_() behind it")


def leaves_or(t: Tracer, cause: Exception) -> Exception:
    """Returns what to raise where the history of a result cannot be kept because of `cause`: perhaps it can
    be kept with the leaves as inputs, or with a call that has no derivative between two graphs."""
    made = [*t.backward.leaves.values(), *t.recorder.history.turned_on.values()]
    sites = [*(leaf[-1] for leaf in made), *t.backward.underived]
    return Avoid(sites[0]) if sites else cause
