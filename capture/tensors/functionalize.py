"""In-place ops and views, turned into functions while they are recorded.

Every Fake over one storage shares a `Memory`.  A write to one of them gives the memory's root a new value node (through the
views between them, each inverted by its `*_scatter` or its opposite view) and a new version; the others replay their
views when they are next read.  Nothing is recorded for a view that is never read again.
Source: the scheme is the one of PyTorch's functionalization pass, reduced to views that are strided.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from frameloom.capture.recording.mutable_custom_ops import form_on_copies
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import same_layout
from frameloom.capture.values.base import Avoid
from frameloom.errors import Break
from frameloom.ir.strides import overlaps
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten


class Tape(Protocol):
    """What the recorder offers here."""

    def emit(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: Fake | None = None
    ) -> Any:
        """Append a node; its value is `like`'s if given.  Tensors in args are Fakes or nodes."""

    def remember(self, fake: Fake) -> None:
        """`fake` or its memory is about to change: keep what is needed to undo it."""


@dataclass(eq=False)
class Memory:
    """One storage: `version` counts writes, `counted` those that autograd counts; `key` is set when it belongs to a graph input."""

    root: Fake
    version: int = 0
    counted: int = 0
    input: int | None = None
    inference: bool = False  # whether it was made in inference mode


@dataclass(frozen=True)
class Written:
    """What `fake` and its memory were before a write, and the history that autograd had for them, in `owner`; `site` of the call."""

    fake: Fake
    node: Any
    version: int
    of_memory: tuple[int, int]  # version and counted
    owner: Fake
    history: Any
    site: Any


@dataclass(frozen=True)
class Piece:
    """One of the views that `func(parent, *args)` gives; `call` is the same object for all of these."""

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
    depth: int  # how many views lie between it and the memory's root
    grad: bool = True  # whether it was made with gradient mode on
    piece: Piece | None = None
    told: bool = False  # whether autograd surely takes it for a view
    counts: bool = True  # whether writes to it count as writes to the parent: not for `.data`
    inference: bool = False  # whether it was made in inference mode
    version: int = 0  # of the memory, when it was made


def current(fake: Fake, tape: Tape) -> Any:
    """The node of the fake's value now; replays views after a write to memory it shares."""
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
            func = aten.alias.default  # what was written to it has a history
        f.node = tape.emit(func, (view.parent, *view.args), view.kwargs, like=f)
        f.version = f.memory.version
    return fake.node


def look_beside(parent: Fake, func: Any, site: Any = None) -> None:
    """A view by `as_strided` may have elements that lie between those of its parent.  Once that is written to, its node has only its own.
    `site`: where the view was made before that."""
    if func is aten.as_strided.default and parent.memory.version and not _is_whole(parent):
        if site is not None:
            raise Avoid(site)
        raise Break("data_pointer", "as_strided(...) of a tensor with gaps that was written to")


def _is_whole(fake: Fake) -> bool:
    return bool(_extent(fake.shape, fake.stride()) == fake.numel())


def counts(fake: Fake) -> bool:
    """Whether autograd counts writes to it as writes to its memory."""
    while fake.view_of is not None:
        if not fake.view_of.counts:
            return False
        fake = fake.view_of.parent
    return True


def is_inference(fake: Fake) -> bool:
    """Whether autograd takes it for a tensor made in inference mode: as its memory was, or elements read as another dtype's."""
    return bool(fake.memory.inference) != (bits_made_apart(fake) is not None)


def bits_made_apart(fake: Fake) -> Fake | None:
    """The `view(dtype)` that was made in inference mode where its memory was not, or the other way round.  Every other view is what its parent is."""
    while (view := fake.view_of) is not None:
        if view.func is aten.view.dtype:
            return fake if bool(view.inference) != bool(fake.memory.inference) else None
        fake = view.parent
    return None


def write(fake: Fake, value: Any, tape: Tape, counted: bool = True) -> None:
    """`fake` gets the value of node `value` (same size, dtype, strides); its memory follows.  `counted`: whether autograd knows of the write."""
    memory, f, node = fake.memory, fake, value
    tape.remember(fake)
    tape.remember(memory.root)
    while f.view_of is not None:
        parent = f.view_of.parent
        node = _put_back(f, parent, node, tape)
        f = parent
    memory.version += 1
    memory.counted += counted and counts(fake)
    memory.root.node, memory.root.version = node, memory.version
    fake.node, fake.version = value, memory.version


def lie_as(node: Any, fake: Fake) -> None:
    """A node's fresh result with `fake`'s layout but for its place gets that place, too: views of what was written to a view
    are found from the node, and lie where they lie in the storage."""
    if node.target is not operator.getitem:
        node.meta["val"] = fake
        return
    several, k = node.args
    values = list(several.meta["val"])
    values[k] = node.meta["val"] = fake
    several.meta["val"] = tuple(values)


def lie_alike(value: Fake, target: Fake) -> bool:
    """Where sizes are 0 or 1, too: a library call gives its result its own strides, and the program sees the target's."""
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
    """The parent's node after its view `child` has become `node`."""
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
        if lie_alike(node.meta["val"], parent):
            lie_as(node, parent)
            return node
        return tape.emit(aten.copy.default, (parent, node), {}, like=parent)
    if view.func is aten.expand.default and child.shape == parent.shape:
        return node
    if view.func is aten.as_strided.default:
        size, stride, *offset = view.args
        whole = parent.is_contiguous() and not parent.storage_offset()
        # Complex numbers are the library's, which counts from the start of the memory.
        if overlaps(size, stride) or not whole or parent.dtype.is_complex:
            raise Break("mutated_view", f"in-place write through {view.func}")
        same = child.shape == parent.shape and child.storage_offset() == parent.storage_offset()
        if same and lie_alike(child, parent):
            return node
        current(parent, tape)
        given = (parent, node, size, stride, *offset)
        return tape.emit(aten.as_strided_scatter.default, given, view.kwargs, like=parent)
    raise Break("mutated_view", f"in-place write through {view.func}")


def reaches_beyond(fake: Fake, size: Any, stride: Any, offset: int | None = None) -> bool:
    """Whether such a view has elements that no tensor over this memory is known to have.  Eager asks the storage, whose size the guards do not know."""
    root = fake.memory.root
    known = (root.storage_offset() + _extent(root.shape, root.stride())) * root.element_size()
    start = fake.storage_offset() if offset is None else offset
    wanted = _extent(size, stride)
    return wanted > 0 and (start + wanted) * fake.element_size() > known


def lies_within(fake: Fake, size: Any, stride: Any, offset: Int) -> bool:
    """Whether all elements of such a view lie between the first and the last of the tensor itself."""
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
    """`squeeze` for `squeeze_`: the view that the tensor becomes; None if there is none."""
    schema = func._schema
    packet = getattr(aten, schema.name.partition("::")[2].removesuffix("_"), None)
    wanted = [(a.name, str(a.type)) for a in schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        if [(a.name, str(a.type)) for a in found._schema.arguments] == wanted:
            return found
    return None


_FUNCTIONAL: dict[Any, Any] = {}


def functional_form(func: Any) -> Any:
    """The op that returns what in-place or out= `func` would write, with the same other arguments; None if there is none."""
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
