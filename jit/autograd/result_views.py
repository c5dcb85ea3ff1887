"""What autograd and `_base` know of a graph's results: which are views, of what, how they were made, and how often they were written to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from frameloom.runtime.fallback import strided_view


def as_told(
    made: Sequence[Any], told: Collection[int], recorded: Collection[int], inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """The results of ops that were run one by one.  Those that are views for the program (`told`, by position) are views of the one over their memory
    that is none, where the graph returns it.  `recorded`: those that were made with gradient mode on."""
    strided = [k for k, m in enumerate(made) if _is_strided(m)]
    if all(k in told or not made[k]._is_view() for k in strided):  # as mostly
        return tuple(made)
    places: dict[int, list[int]] = {}
    for k in strided:
        places.setdefault(made[k].untyped_storage()._cdata, []).append(k)
    given = {i.untyped_storage()._cdata for i in inputs if _is_strided(i)}
    found = list(made)
    for memory, together in places.items():
        seen = {id(made[k]): k for k in together if k not in told}
        if memory in given or len(seen) != 1:
            continue
        ((identity, first),) = seen.items()
        new = {identity: as_new(made[first], ())}
        for k in together:
            if id(made[k]) not in new:
                with torch.set_grad_enabled(k in recorded and torch.is_grad_enabled()):
                    new[id(made[k])] = _as_view_of(new[identity], made[k])
            found[k] = new[id(made[k])]
    return tuple(found)


def _is_strided(made: Any) -> bool:
    return isinstance(made, torch.Tensor) and made.layout is torch.strided


def _as_view_of(base: Any, made: Any) -> Any:
    if _kind(base)[1:] != _kind(made)[1:]:
        return made
    first = base.storage_offset() * base.element_size() // made.element_size()
    at = made.storage_offset() - first
    return strided_view(base, at, made.shape, made.stride(), made.dtype)


def as_recorded(
    made: Sequence[Any], recorded: Collection[int], inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Results that ops made with gradient mode off: for autograd, these views (`recorded`) are as if it had been as it is now."""
    found = list(made)
    known = _by_base(inputs)
    for k in recorded:
        m = made[k]
        given = known.get(id(base_of(m)))
        if given is None:
            _note(m, torch._C._autograd.CreationMeta.DEFAULT)
        else:
            found[k] = _made_again(m, given)
    return tuple(found)


def _made_again(view: Any, given: Any) -> Any:
    return given.as_strided(view.shape, view.stride(), view.storage_offset())


def _note(made: Any, creation: Any) -> None:
    if made._is_view() and not made.is_inference():
        torch._C._autograd._set_creation_meta(made, creation)


def _by_base(tensors: Sequence[Any]) -> dict[int, Any]:
    """By the identity of what they are views of; autograd notes of a view of a view what it has noted of that."""
    return {id(t if t._base is None else t._base): t for t in tensors if isinstance(t, torch.Tensor)}  # fmt: skip


def as_new(made: Any, inputs: Sequence[Any]) -> Any:
    """Not as a view: autograd forbids writes to those that a node returns.  And not as one that was written to."""
    if not isinstance(made, torch.Tensor) or any(made is i for i in inputs):
        return made
    return made.data if made._is_view() or made._version else made


def counting(plan: Any, counts: Mapping[int, int], recorded: Collection[int]) -> Any:
    """`plan`, whose own calls count writes to its inputs otherwise than the program's: by `counts`.  `recorded`: the results that are views
    made with gradient mode on."""
    if not counts:
        return plan

    def run(*inputs: Any) -> Any:
        written = [(inputs[k], n) for k, n in counts.items() if not inputs[k].is_inference()]
        tensors = tuple([t for t, _ in written])
        before = tuple([t._version for t in tensors])
        try:
            made = plan(*inputs)
        finally:
            torch._C._autograd._unsafe_set_version_counter(tensors, before)
        # Not where it raises: the call starts anew then.  What shares memory shares its version, so that these add up.
        for t, count in written:
            torch._C._increment_version([t] * count)
        # A view knows how often its base was written when it was made: these are made again.
        known = _by_base(tensors)
        anew = {id(m): k for k, m in reversed([*enumerate(made)]) if id(base_of(m)) in known}
        if not anew:
            return made
        views: dict[int, Any] = {}
        for k in anew.values():
            with torch.set_grad_enabled(k in recorded and torch.is_grad_enabled()):
                m = made[k]
                views[id(m)] = _made_again(m, known[id(m._base)])
        return tuple([views.get(id(m), m) for m in made])

    return run


def as_created(plan: Any, creation: Mapping[int, str]) -> Any:
    """`plan`, of whose results that are views autograd is to note that they were made as `creation` says: it refuses writes to some."""
    if not creation:
        return plan
    notes = {k: getattr(torch._C._autograd.CreationMeta, name) for k, name in creation.items()}

    def run(*inputs: Any) -> Any:
        made = plan(*inputs)
        for k, how in notes.items():
            _note(made[k], how)
        return made

    return run


def base_of(made: Any) -> Any:
    """What `made` views the elements of; nothing where a view made of that by its strides would be another."""
    base: Any = made._base if isinstance(made, torch.Tensor) else None
    if base is None or not torch._C._is_alias_of(base, made):  # type: ignore[attr-defined]  # as behind `set_`
        return None
    return base if _kind(made) == _kind(base) else None


def _kind(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()
