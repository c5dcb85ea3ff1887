"""Leaves of autograd's that captured code makes: `x.detach().requires_grad_()`, `torch.zeros(3, requires_grad=True)`.

Histories may begin there as long as nobody outside sees the tensor itself.  One that is seen outside, or to which alone the history of a result
leads, is made by plain Python: by a break where it was made, so that it is an input of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Avoid
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.fake import Fake
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue


def is_leaf(fake: Fake) -> bool:
    view = fake.view_of
    # Of a tensor that requires gradients, a view without history calls itself a leaf.
    hidden = view is not None and not view.grad and view.parent.requires_grad
    return fake.requires_grad and fake.is_leaf and not hidden


def require_gradient(t: Tracer, value: TensorValue) -> None:
    """`requires_grad_()` on a tensor that the captured code has made."""
    fake: Any = value.fake
    possible = fake.is_floating_point() or fake.is_complex()
    if value.real is not None or not possible or fake.memory.inference:
        raise Break("autograd", "tensor.requires_grad_(...)")
    note_leaf(t, fake)
    fake.requires_grad_()
    t.on_undo(partial(fake.requires_grad_, False))


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


def leaves_or(t: Tracer, cause: Exception) -> Exception:
    """What to raise where the history of a result cannot be kept for `cause`: perhaps it can with the leaves as inputs."""
    return Avoid(next(iter(t.leaves.values()))[1]) if t.leaves else cause
