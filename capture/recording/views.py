"""Records ops that return views, and ops that turn a tensor into another view of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.recording.captured_graph import recorded_behind
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import (
    SplitView,
    ViewOf,
    counts,
    functional_form_of_view,
    is_within_extent,
    look_beside,
    mixed_mode_view,
    reaches_beyond,
)
from frameloom.capture.tensors.schema import SPLITS
from frameloom.capture.tensors.sized import SizedFake
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

aten = torch.ops.aten
MAX_VIEWS = 500  # depth of views of views
MAX_SPLIT_VIEWS = 10_000  # views of one tensor made by one call
# Ops whose one-element result keeps the larger memory of the unreduced values.
LEAVES_MEMORY = frozenset(
    {aten.mse_loss.default, aten.smooth_l1_loss.default, aten.soft_margin_loss.default}
)
WIDE = {float: torch.float64, complex: torch.complex128}  # of numbers that PyTorch wraps as tensors
LOOKS_BEHIND = frozenset({"as_strided", "resize_", "set_", "storage", "untyped_storage"})


def view(
    recorder: Recorder,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    split_view: SplitView | None = None,
) -> Any:
    """Records a view of the first argument and returns its Fake; a list of Fakes where the op splits."""
    parent, *rest = args
    if not isinstance(parent, Fake):  # autograd takes its conjugate, or `vmap` expands it
        number = torch.tensor(parent, dtype=WIDE.get(type(parent)))
        return recorder.new_constant(func(number, *rest, **kwargs).resolve_conj())
    if func is aten.detach.default and _is_new(recorder, parent):
        return parent
    if func in SPLITS:
        call, given = object(), (*rest, *kwargs.values())
        parts = SPLITS[func](parent, *rest, **kwargs)
        if len(parts) > MAX_SPLIT_VIEWS:
            raise Break("too_large", f"{len(parts)} parts of a tensor")
        return [
            view(recorder, f, (parent, *a), {}, SplitView(func, given, k, call))
            for k, (f, a) in enumerate(parts)
        ]
    is_known_view = func is not aten._unsafe_view.default and (
        # On every path of PyTorch, a result that shares the memory of its operands is a view of them.
        recorder.current_call.decomposes_as_eager
        or id(parent.memory.root) not in recorder.made_in_call()
    )
    if func is aten._unsafe_view.default:
        func = aten.view.default
    if func is aten.as_strided.default and reaches_beyond(parent, *rest, **kwargs):
        _avoid_memory_behind(parent)
        raise Break("data_pointer", "as_strided(...) beyond the tensor")
    if func is aten.as_strided.default and parent.view_of is not None:
        parent, *rest = args = _of_the_memory(recorder, parent, *rest, **kwargs)
        kwargs = {}
    look_beside(parent, func)
    if func is aten.lift_fresh.default:
        func = aten.alias.default
    node = recorder.emit(func, args, kwargs)
    fake = node.meta["val"]
    if not isinstance(fake, Fake):
        raise Break("unsupported_op", f"{func} returns several views")
    fake.node, fake.memory = node, parent.memory
    depth = 1 if parent.view_of is None else parent.view_of.depth + 1
    if depth > MAX_VIEWS:  # PyTorch takes ever longer for each
        raise Break("too_large", f"views of views, {depth} deep")
    fake.version = parent.memory.version
    fake.view_of = ViewOf(
        parent,
        func,
        tuple(rest),
        dict(kwargs),
        depth,
        grad=torch.is_grad_enabled(),
        split_view=split_view,
        is_known_view=is_known_view,
        inference=recorder.current_call.inference,
        version=fake.version,
    )
    return fake


def _is_new(recorder: Recorder, fake: Fake) -> bool:
    """Whether a function without tensor operands has just made it. For subclasses, PyTorch's bindings pass on
    a detached one."""
    fresh = recorder.fakes[recorder.current_call.old :]
    if not fresh or fresh[-1] is not fake:
        return False
    node = fake.node
    of = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Fake)]
    return not of or node.target._schema.name.endswith("_like")


def _of_the_memory(
    recorder: Recorder, parent: Fake, size: Any, stride: Any, storage_offset: Any = None
) -> tuple[Any, ...]:
    """Returns the arguments of `as_strided` that give the same view from the memory's root: after a write to
    the parent, its node has only its own elements."""
    root = parent.memory.root
    offset = parent.storage_offset() if storage_offset is None else storage_offset
    plain = not recorder.current_call.is_followed and not root.requires_grad and counts(parent)
    if plain and parent.dtype is root.dtype:
        return root, size, stride, offset
    if parent.is_contiguous() and is_within_extent(parent, size, stride, offset):
        return parent, size, stride, offset
    raise Break("data_pointer", "as_strided(...) beyond the tensor")


def _avoid_memory_behind(fake: Fake) -> None:
    """Captures again with a graph break where the tensor was made: eager's result may have more memory than
    elements."""
    memory = fake.memory
    site = memory.root.node.meta.get("site")
    if memory.input is None and not memory.version and site is not None:
        raise Avoid(site)


def check_memory_behind(outputs: Sequence[Fake]) -> None:
    """Breaks for results that leave the graph where the function may look at the memory behind their
    elements."""
    for fake in outputs:
        node = fake.memory.root.node
        site = node.meta.get("site") if node.target in LEAVES_MEMORY else None
        if site is not None and not LOOKS_BEHIND.isdisjoint(site[0].co_names):
            _avoid_memory_behind(fake)


def check_bits(outputs: Sequence[Fake]) -> None:
    """Breaks for results that are inference tensors while their memory is not one, or the reverse: plans
    cannot make such views."""
    for fake in outputs:
        if (view := mixed_mode_view(fake)) is not None:
            site = view.node.meta.get("site")
            if site is None:
                raise Break(
                    "unsupported_op", "view(dtype) in another inference mode than its memory"
                )
            raise Avoid(site)


def reshape(recorder: Recorder, func: Any, fake: Fake, *args: Any, **kwargs: Any) -> Fake:
    """Records `squeeze_`, `as_strided_` and similar ops on a fresh result, as PyTorch's own functions use
    them: the tensor becomes a view of its former self."""
    fresh = recorder.fakes[recorder.current_call.old :]
    form = functional_form_of_view(func)
    if form is None or not any(f is fake for f in fresh) or fake.version != fake.memory.version:
        raise Break("metadata_mutation", str(func))
    before = Fake(fake.meta, fake.device)
    before.node, before.memory, before.view_of = fake.node, fake.memory, fake.view_of
    before.version = fake.version
    _rename(recorder, fake, before)
    if fake.memory.root is fake:
        fake.memory.root = before
    for f in fresh:
        if f.view_of is not None and f.view_of.parent is fake:
            f.view_of = replace(f.view_of, parent=before)
    recorder.fakes.append(before)
    seen = view(recorder, form, (before, *args), kwargs)
    with torch._C._DisableTorchDispatch():
        torch.as_strided_(fake, seen.shape, seen.stride(), seen.storage_offset())
    if isinstance(fake, SizedFake):
        fake.copy_layout(seen)
    fake.meta, fake.node, fake.view_of = seen.meta, seen.node, seen.view_of
    fake.node.meta["val"] = fake
    return fake


def _rename(recorder: Recorder, fake: Fake, other: Fake) -> None:
    """Replaces `fake` by `other`, its former self, as the value of the nodes of the current call."""
    for node in recorded_behind(recorder.current_call.last):
        val = node.meta.get("val")
        if val is fake:
            node.meta["val"] = other
        elif isinstance(val, tuple):
            node.meta["val"] = tuple(other if v is fake else v for v in val)
