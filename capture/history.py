"""Questions about the history that autograd keeps of Fakes, and the state in which it is followed backwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.fake import Fake
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.record import Recorder


@contextmanager
def without_autocast() -> Iterator[None]:
    """A backward pass runs outside of the autocast blocks of its forward pass."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)


def frees(roots: Sequence[Fake], recorder: Recorder) -> tuple[frozenset[int], ...]:
    """Per root, those whose histories share a node that saves tensors: a backward pass from one lets go of what the other needs."""
    if len(roots) < 2:
        return tuple(frozenset([n]) for n in range(len(roots)))
    try:
        with recorder:
            histories = [history(r) for r in roots]  # held together: an identity is one node's
            saving = [{id(f) for f in h if _saves(f)} for h in histories]
    except RuntimeError as error:  # one was changed in place
        raise Break("gradient", str(error).splitlines()[0]) from error
    return tuple(
        frozenset(m for m, other in enumerate(saving) if m == n or not own.isdisjoint(other))
        for n, own in enumerate(saving)
    )


def history(fake: Fake) -> list[Any]:
    """All autograd nodes behind it."""
    found = {fake.grad_fn: None}
    stack = [fake.grad_fn]
    while stack:
        for f, _ in stack.pop().next_functions:
            if f is not None and f not in found:
                found[f] = None
                stack.append(f)
    return list(found)


def _saves(function: Any) -> bool:
    if getattr(function, "saved_tensors", ()):
        return True
    for name in dir(function):
        if name.startswith("_raw_saved_"):
            value = getattr(function, name.removeprefix("_raw"), None)
            if value is not None and value != ():
                return True
    return False
