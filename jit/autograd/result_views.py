"""Corrects what autograd and `_base` know of a graph's results: which are views, of what, how they were made,
and how often they were written to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from frameloom.runtime.fallback import set_count, strided_view


def restore_views(
    run_results: Sequence[Any],
    view_positions: Collection[int],
    recorded: Collection[int],
    inputs: Sequence[Any],
) -> tuple[Any, ...]:
    """Returns the results of ops that were run one by one, with the views that the program has.
    `view_positions`: positions of results that are views in the program.  If exactly one result over the same
    memory is not such a view, the others become views of it.  `recorded`: positions of views that were made
    with gradient mode on."""
    strided = [k for k, m in enumerate(run_results) if _is_strided(m)]
    if all(
        k in view_positions or not run_results[k]._is_view() for k in strided
    ):  # the common case
        return tuple(run_results)
    places: dict[int, list[int]] = {}
    for k in strided:
        places.setdefault(run_results[k].untyped_storage()._cdata, []).append(k)
    given = {i.untyped_storage()._cdata for i in inputs if _is_strided(i)}
    results = list(run_results)
    for memory, together in places.items():
        seen = {id(run_results[k]): k for k in together if k not in view_positions}
        if memory in given or len(seen) != 1:
            continue
        ((identity, first),) = seen.items()
        new = {identity: as_new(run_results[first], ())}
        for k in together:
            if id(run_results[k]) not in new:
                with torch.set_grad_enabled(k in recorded and torch.is_grad_enabled()):
                    new[id(run_results[k])] = _as_view_of(new[identity], run_results[k])
            results[k] = new[id(run_results[k])]
    return tuple(results)


def _is_strided(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided


def _as_view_of(base: Any, tensor: Any) -> Any:
    if _kind(base)[1:] != _kind(tensor)[1:]:
        return tensor
    first = base.storage_offset() * base.element_size() // tensor.element_size()
    at = tensor.storage_offset() - first
    return strided_view(base, at, tensor.shape, tensor.stride(), tensor.dtype)


def as_recorded(
    run_results: Sequence[Any], recorded: Collection[int], inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Returns results that ops made with gradient mode off, where autograd treats the views at the positions
    `recorded` as made in the current mode."""
    results = list(run_results)
    known = _by_base(inputs)
    for k in recorded:
        m = run_results[k]
        given = known.get(id(base_of(m)))
        if given is None:
            _set_creation(m, torch._C._autograd.CreationMeta.DEFAULT)
        else:
            results[k] = _recreate_view(m, given)
    return tuple(results)


def _recreate_view(view: Any, given: Any) -> Any:
    return given.as_strided(view.shape, view.stride(), view.storage_offset())


def _set_creation(tensor: Any, creation: Any) -> None:
    if tensor._is_view() and not tensor.is_inference():
        torch._C._autograd._set_creation_meta(tensor, creation)


def _by_base(tensors: Sequence[Any]) -> dict[int, Any]:
    """Returns the tensors by the identity of their bases.  For a view of a view, autograd notes the same as
    for the first view."""
    return {id(t if t._base is None else t._base): t for t in tensors if isinstance(t, torch.Tensor)}  # fmt: skip


def as_new(tensor: Any, inputs: Sequence[Any]) -> Any:
    """Returns the tensor as one that is not a view and has version 0: autograd forbids writes to views that a
    node returns."""
    if not isinstance(tensor, torch.Tensor) or any(tensor is i for i in inputs):
        return tensor
    return tensor.data if tensor._is_view() or tensor._version else tensor


def counting(plan: Any, counts: Mapping[int, int], recorded: Collection[int]) -> Any:
    """Returns `plan` with other counts of writes to its inputs: versions rise by `counts`, as in the program,
    and not by the plan's own writes.  `recorded`: positions of results that are views made with gradient mode
    on."""
    if not counts:
        return plan

    def run(*inputs: Any) -> Any:
        written = [(inputs[k], n) for k, n in counts.items() if not inputs[k].is_inference()]
        tensors = tuple([t for t, _ in written])
        before = tuple([t._version for t in tensors])
        try:
            outputs = plan(*inputs)
        finally:
            torch._C._autograd._unsafe_set_version_counter(tensors, before)
        # Not if the plan raises: the call then starts again as plain Python.  Tensors that share memory share
        # a version, so their counts add up.
        for t, count in written:
            torch._C._increment_version([t] * count)
        return _with_new_views(outputs, _by_base(tensors), recorded)

    return run


def _with_new_views(
    outputs: Sequence[Any], known: Mapping[int, Any], recorded: Collection[int]
) -> Sequence[Any]:
    """Returns the results with new views of the bases that are `known` by their identity: a view stores its
    base's version at its creation."""
    recreated = {id(m): k for k, m in reversed([*enumerate(outputs)]) if id(base_of(m)) in known}
    if not recreated:
        return outputs
    views: dict[int, Any] = {}
    for k in recreated.values():
        with torch.set_grad_enabled(k in recorded and torch.is_grad_enabled()):
            m = outputs[k]
            views[id(m)] = _recreate_view(m, known[id(m._base)])
    return tuple([views.get(id(m), m) for m in outputs])


def recounted(plan: Any, counts: Mapping[int, int], recorded: Collection[int]) -> Any:
    """Returns `plan` with other counts of writes to what it makes: those of the program, by the positions of
    results.  `recorded`: positions of results that are views made with gradient mode on."""
    if not counts:
        return plan

    def run(*inputs: Any) -> Any:
        outputs = plan(*inputs)
        changed = {}
        for k, count in counts.items():
            if set_count(outputs[k], count) and outputs[k]._is_view():
                changed[id(outputs[k]._base)] = outputs[k]._base
        return _with_new_views(outputs, changed, recorded)

    return run


def as_created(plan: Any, creation: Mapping[int, str]) -> Any:
    """Returns `plan` with notes for autograd how views among its results were made, as `creation` says:
    autograd refuses writes to some."""
    if not creation:
        return plan
    notes = {k: getattr(torch._C._autograd.CreationMeta, name) for k, name in creation.items()}

    def run(*inputs: Any) -> Any:
        outputs = plan(*inputs)
        for k, how in notes.items():
            _set_creation(outputs[k], how)
        return outputs

    return run


def base_of(tensor: Any) -> Any:
    """Returns the tensor of which `tensor` is a view; None if `as_strided` of that tensor gives a different
    view."""
    base: Any = tensor._base if isinstance(tensor, torch.Tensor) else None
    if base is None or not torch._C._is_alias_of(base, tensor):  # type: ignore[attr-defined]  # e.g. after `set_`
        return None
    return base if _kind(tensor) == _kind(base) else None


def _kind(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()
