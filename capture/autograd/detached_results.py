"""Results that are views by `detach` or `.data`, which plans cannot make, and views of these. They are made
after the plan from its results, so that autograd knows the base of each, and which of them share a version
counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from frameloom.capture.autograd.outputs import DETACH
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import counter, counts, is_inference, views_in


@dataclass(frozen=True)
class Cut:
    """A tensor made by `detach` or `.data`. `number`: the result that it is, if it is one; `inference`: made
    in inference mode; `counted`: how many writes autograd counts, of one by `.data`."""

    key: int
    by_data: bool
    number: int | None
    inference: bool
    counted: int


@dataclass(frozen=True)
class Detached:
    """A result after a chain of `cuts`. `grad`: None for the last cut itself, otherwise the gradient mode in
    which the view of it was made."""

    cuts: tuple[Cut, ...]
    grad: bool | None = None
    inference: bool = False


def detached(outputs: Sequence[Fake], ran_backward: bool) -> dict[int, Detached]:
    """Returns the results that share memory with an input, or with each other and without histories; and
    those cut from a tensor made in inference mode."""
    cuts = [_cuts(fake) for fake in outputs]
    used = Counter(id(c) for some in cuts for c in some)
    memories = Counter(id(fake.memory) for fake in outputs)
    numbers = {id(fake): n for n, fake in reversed([*enumerate(outputs)])}
    has_histories = not ran_backward and any(fake.requires_grad for fake in outputs)
    by_output = {}
    for n, (fake, some) in enumerate(zip(outputs, cuts, strict=True)):
        if fake.memory is None or fake.view_of is None:
            continue
        root = fake.memory.root
        together = any(used[id(c)] > 1 for c in some)
        if fake.memory.input is None:
            # After inference mode, `detach` returns a tensor that counts its writes, unlike all other views
            # there.
            begins = (
                is_inference(fake) and any(c is fake for c in some) and not fake.view_of.inference
            )
            if not begins and (memories[id(fake.memory)] == 1 or fake.requires_grad):
                continue
            # made together with all its views
            if root.requires_grad and has_histories and not together:
                continue
        if some and _is_tracked_view(fake, some[-1]):
            steps = tuple(_cut(id(c), c, n if c is fake else numbers.get(id(c))) for c in some)
            grad = None if some[-1] is fake else fake.view_of.grad
            by_output[n] = Detached(steps, grad, fake.view_of.inference)
        elif is_inference(fake):
            continue
        elif not counts(fake) or (root.requires_grad and not fake.requires_grad):
            by_output[n] = Detached((_cut(n, fake, n),))
    return by_output


def _cut(key: int, fake: Fake, number: int | None) -> Cut:
    count = counter(fake)
    by_data = count is not fake.memory.root
    counted = count.counted if by_data else 0
    return Cut(key, by_data, number, fake.view_of.inference, counted)


def _cuts(fake: Fake) -> list[Fake]:
    """Returns the last tensor by `.data` that it is or is a view of, and the last one by `detach` after
    that."""
    cuts: list[Fake] = []
    while fake.view_of is not None:
        if not fake.view_of.counts:
            return [fake, *cuts]
        if fake.view_of.func is DETACH and not cuts:
            cuts = [fake]
        fake = fake.view_of.parent
    return cuts


def _is_tracked_view(fake: Fake, cut: Fake) -> bool:
    """Whether it is `cut`, or autograd treats it as a view of `cut`."""
    if fake is cut:
        return True
    known = all(view.is_known_view for view in views_in(fake, cut))
    return known and not fake.requires_grad and not is_inference(fake)


def detach_some(outputs: tuple[Any, ...], which: dict[int, Detached]) -> tuple[Any, ...]:
    """Called from new code."""
    made: dict[Any, Any] = {}
    return tuple(
        out if n not in which else _taken(outputs, n, which[n], made)
        for n, out in enumerate(outputs)
    )


def _taken(outputs: tuple[Any, ...], n: int, how: Detached, made: dict[Any, Any]) -> Any:
    out = base = outputs[n]
    for k, cut in enumerate(how.cuts):
        like = out if cut.number is None else outputs[cut.number]
        key = cut.key if cut.number is None else (cut.number,)
        if key not in made:
            tensor = _view(base, like) if k else like
            with _inference(cut.inference):
                made[key] = tensor.data if cut.by_data else tensor.detach()
            if cut.counted and not made[key].is_inference():
                torch._C._autograd._unsafe_set_version_counter((made[key],), (cut.counted,))
        base = made[key]
    if how.grad is None:
        return base
    with _inference(how.inference), torch.set_grad_enabled(how.grad):
        return _view(base, out)


def _inference(wanted: bool) -> AbstractContextManager[Any]:
    as_now = wanted == torch.is_inference_mode_enabled()
    return nullcontext() if as_now else torch.inference_mode(wanted)


def _view(base: Any, like: Any) -> Any:
    """Returns `like` as a view of `base`, which has the same memory."""
    bits = like.is_conj(), like.is_neg()
    if (base.is_conj(), base.is_neg()) != bits or base.itemsize != like.itemsize:
        return like.detach().view_as(like)
    if base.dtype != like.dtype:
        base = base.view(like.dtype)
    return base.as_strided(like.shape, like.stride(), like.storage_offset())
