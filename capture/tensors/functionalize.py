"""Functional forms of in-place ops and views, made while they are recorded.

All Fakes over one storage share a `Memory`. A write to one of them gives the root of the memory a new value
node and a new version. The new value goes through the views in between; each is inverted by its `*_scatter`
or its opposite view. The other Fakes replay their views when they are next read. Nothing is recorded for a
view that is never read again.
Source: the scheme is that of PyTorch's functionalization pass, reduced to strided views.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.mutable_custom_ops import form_on_copies
from frameloom.capture.tensors.schema import same_layout
from frameloom.errors import Avoid, Break
from frameloom.ir.strides import overlaps
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten


class Tape(Protocol):
    """The interface of the recorder that is used here."""

    def emit(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Fake | None = None
    ) -> Any:
        """Appends a node; its value is `like`'s if given. Tensors in args are Fakes or nodes."""

    def remember(self, fake: Fake) -> None:
        """Keeps what is needed to undo the next change of `fake` or its memory."""


@dataclass(eq=False)
class Memory:
    """One storage. `version` counts writes; `input` is set if it belongs to a graph input."""

    root: Fake
    version: int = 0
    input: int | None = None
    inference: bool = False  # whether it was made in inference mode


@dataclass(frozen=True)
class Written:
    """The state of `fake` and its memory before a write, and the autograd history that `owner` had; `site` is
    the place of the call."""

    fake: Fake
    node: Any
    version: int
    counted: int
    of_memory: int  # its version
    owner: Fake
    history: Any
    site: Any


@dataclass(frozen=True)
class SplitView:
    """One of the views that `func(parent, *args)` returns; `call` is the same object for all of these."""

    func: Any
    args: tuple[Any, ...]
    number: int
    call: object


@dataclass(frozen=True)
class ViewOf:
    """`fake` is `func(parent, *args, **kwargs)`; `args` exclude the parent."""

    parent: Fake
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    depth: int  # number of views between it and the memory's root
    grad: bool = True  # whether it was made with gradient mode on
    split_view: SplitView | None = None
    is_known_view: bool = False  # whether autograd certainly treats it as a view
    counts: bool = True  # whether writes to it count as writes to the parent: false for `.data`
    inference: bool = False  # whether it was made in inference mode
    version: int = 0  # that the memory had when it was made


def current(fake: Fake, tape: Tape) -> Any:
    """Returns the node of the fake's current value; replays views after a write to memory that it shares."""
    stale: list[Fake] = []
    f = fake
    while f.version != f.memory.version and f.view_of is not None:
        stale.append(f)
        f = f.view_of.parent
    for f in reversed(stale):
        tape.remember(f)
        view = f.view_of
        func = view.func
        look_beside(view.parent, func, f.node.meta.get("site"))
        if func is aten.detach.default and f.requires_grad and not f.is_leaf:
            func = aten.alias.default  # a value with a history was written to it
        f.node = tape.emit(func, (view.parent, *view.args), view.kwargs, like=f)
        f.version = f.memory.version
    return fake.node


def look_beside(parent: Fake, func: Any, site: Any = None) -> None:
    """Raises if a view by `as_strided` may have elements between those of its parent. After a write to the
    parent, the parent's node has only its own elements. `site`: where the view was made before that write."""
    if func is aten.as_strided.default and parent.memory.version and not _has_no_gaps(parent):
        if site is not None:
            raise Avoid(site)
        raise Break("data_pointer", "as_strided(...) of a tensor with gaps that was written to")


def _has_no_gaps(fake: Fake) -> bool:
    return bool(_extent(fake.shape, fake.stride()) == fake.numel())


def view_chain(fake: Fake, base: Fake | None = None) -> list[Fake]:
    """Returns the chain of views from `base`, or from the memory's root, to `fake`."""
    chain = [fake]
    while chain[-1] is not base and chain[-1].view_of is not None:
        chain.append(chain[-1].view_of.parent)
    return chain[::-1]


def views_in(fake: Fake, base: Fake | None = None) -> list[ViewOf]:
    """Returns how each tensor of the chain is a view of the one before it."""
    return [f.view_of for f in view_chain(fake, base)[1:]]


def counts(fake: Fake) -> bool:
    """Whether autograd counts writes to it as writes to its memory."""
    return counter(fake) is fake.memory.root


def counter(fake: Fake) -> Fake:
    """Returns the tensor with whose writes autograd counts those of `fake`: the one that `.data` made, or the
    memory's root."""
    while fake.view_of is not None and fake.view_of.counts:
        fake = fake.view_of.parent
    return fake


def is_inference(fake: Fake) -> bool:
    """Whether autograd treats it as a tensor made in inference mode: if its memory was made so, or if a
    `view(dtype)` was made in the other mode."""
    return bool(fake.memory.inference) != (mixed_mode_view(fake) is not None)


def mixed_mode_view(fake: Fake) -> Fake | None:
    """Returns the `view(dtype)` that was made in inference mode while its memory was not, or the reverse;
    else None. Every other view has the mode of its parent."""
    while (view := fake.view_of) is not None:
        if view.func is aten.view.dtype:
            return fake if bool(view.inference) != bool(fake.memory.inference) else None
        fake = view.parent
    return None


def write(fake: Fake, value: Any, tape: Tape, counted: bool = True) -> None:
    """Gives `fake` the value of node `value` (same size, dtype, strides) and updates its memory. `counted`:
    whether autograd sees the write."""
    memory, f, node = fake.memory, fake, value
    count = counter(fake)
    for changed in dict.fromkeys((fake, memory.root, count)):
        tape.remember(changed)
    while f.view_of is not None:
        parent = f.view_of.parent
        node = _put_back(f, parent, node, tape)
        f = parent
    memory.version += 1
    count.counted += counted
    memory.root.node, memory.root.version = node, memory.version
    fake.node, fake.version = value, memory.version


def adopt_offset(node: Any, fake: Fake) -> None:
    """Gives a node's fresh result, which has `fake`'s shape and strides, the storage offset of `fake`, too.
    Views of a written view are derived from the node, and must have their true place in the storage."""
    if node.target is not operator.getitem:
        node.meta["val"] = fake
        return
    several, k = node.args
    values = list(several.meta["val"])
    values[k] = node.meta["val"] = fake
    several.meta["val"] = tuple(values)


def has_same_strides(value: Fake, target: Fake) -> bool:
    """Whether both have the same strides, also in dimensions of size 0 or 1: a library call gives its result
    its own strides, and the program sees those of the target."""
    numbers = zip(value.shape, value.stride(), target.stride(), strict=True)
    small = all(same(s, t) for n, s, t in numbers if type(n) is int and n <= 1)
    return small and same_layout(value, target)


SCATTERS = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}
IDENTITIES = {aten.alias.default, aten.detach.default, aten.lift_fresh.default}
OWN_INVERSE = {aten.t.default, aten.transpose.int}
RESHAPES = {
    aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten._reshape_alias.default,
}  # fmt: skip


def _put_back(child: Fake, parent: Fake, node: Any, tape: Tape) -> Any:
    """Returns the parent's node after its view `child` has become `node`."""
    view = child.view_of
    if view.func in SCATTERS:
        current(parent, tape)
        return tape.emit(SCATTERS[view.func], (parent, node, *view.args), view.kwargs, like=parent)
    if view.func in IDENTITIES:
        return node
    if view.func in OWN_INVERSE:
        return tape.emit(view.func, (node, *view.args), {}, like=parent)
    if view.func is aten.permute.default:
        dims = [d % len(view.args[0]) for d in view.args[0]]
        return tape.emit(
            view.func, (node, [dims.index(i) for i in range(len(dims))]), {}, like=parent
        )
    if view.func in RESHAPES:
        if not child.is_contiguous():
            node = tape.emit(
                aten.clone.default, (node,), {"memory_format": torch.contiguous_format}
            )
        node = tape.emit(aten.view.default, (node, list(parent.shape)), {})
        if has_same_strides(node.meta["val"], parent):
            adopt_offset(node, parent)
            return node
        return tape.emit(aten.copy.default, (parent, node), {}, like=parent)
    if view.func is aten.expand.default and child.shape == parent.shape:
        return node
    if view.func is aten.as_strided.default:
        size, stride, *offset = view.args
        whole = parent.is_contiguous() and not parent.storage_offset()
        # A library call handles complex numbers, and it counts offsets from the start of the memory.
        if overlaps(size, stride) or not whole or parent.dtype.is_complex:
            raise Break("mutated_view", f"in-place write through {view.func}")
        same = child.shape == parent.shape and child.storage_offset() == parent.storage_offset()
        if same and has_same_strides(child, parent):
            return node
        current(parent, tape)
        given = (parent, node, size, stride, *offset)
        return tape.emit(aten.as_strided_scatter.default, given, view.kwargs, like=parent)
    raise Break("mutated_view", f"in-place write through {view.func}")


def reaches_beyond(fake: Fake, size: Any, stride: Any, offset: int | None = None) -> bool:
    """Whether such a view may have elements that no known tensor over this memory has. Eager mode checks the
    size of the storage, which the guards do not know."""
    root = fake.memory.root
    known = (root.storage_offset() + _extent(root.shape, root.stride())) * root.element_size()
    start = fake.storage_offset() if offset is None else offset
    wanted = _extent(size, stride)
    return wanted > 0 and (start + wanted) * fake.element_size() > known


def is_within_extent(fake: Fake, size: Any, stride: Any, offset: Int) -> bool:
    """Whether all elements of such a view are between the first and the last of the tensor itself."""
    first = fake.storage_offset()
    wanted = _extent(size, stride)
    if not wanted > 0:
        return True
    return bool(offset >= first and offset + wanted <= first + _extent(fake.shape, fake.stride()))


def _extent(size: Any, stride: Any) -> int:
    if 0 in size:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def functional_form_of_view(func: Any) -> Any:
    """Returns the view that an in-place view op corresponds to, such as `squeeze` for `squeeze_`; None if
    there is none."""
    schema = func._schema
    packet = getattr(aten, schema.name.partition("::")[2].removesuffix("_"), None)
    wanted = [(a.name, str(a.type)) for a in schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload)
        if [(a.name, str(a.type)) for a in candidate._schema.arguments] == wanted:
            return candidate
    return None


_FUNCTIONAL: dict[Any, Any] = {}


def functional_form(func: Any) -> Any:
    """Returns the op that returns the value which in-place or out= `func` would write, with the same other
    arguments; None if there is none."""
    if func not in _FUNCTIONAL:
        _FUNCTIONAL[func] = _find_functional_form(func)
    return _FUNCTIONAL[func]


def _find_functional_form(func: Any) -> Any:
    namespace, name = func._schema.name.split("::")
    is_out = any(a.is_out for a in func._schema.arguments)
    plain = name if is_out else name.removesuffix("_")
    if name.startswith("__i"):
        plain = f"__{name[3:]}"
    names = [plain] if plain != name or is_out else []
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]
    for name in [*names, f"{plain}_functional"]:
        packet = getattr(getattr(torch.ops, namespace), name, None)
        for overload in packet.overloads() if packet is not None else ():
            candidate = getattr(packet, overload)
            schema = candidate._schema
            if any(a.alias_info is not None for a in schema.arguments):
                continue
            if [(a.name, str(a.type)) for a in schema.arguments] == wanted:
                return candidate
    return form_on_copies(func)
