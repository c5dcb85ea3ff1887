"""A backward graph for gradients of results with other layouts than those of the recording.

In eager, layouts of results follow from those of operands: an expanded or permuted gradient gives results
with other strides. So the layouts of everything that is computed from such a gradient are inferred again, op
by op, as far as they change. What an op computes stays the same, except for views that do not exist for the
new layout: autograd copies the tensor first (`reshape`)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.autograd.prune import LEFT
from frameloom.capture.recording.backward_marks import summed
from frameloom.capture.recording.captured_graph import Layout, behind, call_like, graph_of
from frameloom.capture.shapes.device_layouts import on_device
from frameloom.capture.shapes.registry import infer_node
from frameloom.capture.shapes.view_rules import infer_size, view_strides
from frameloom.capture.symbolic.saved_sizes import given_sizes
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import device_of, draws, is_view
from frameloom.capture.tensors.sized import Sized, empty_strided, strides_of
from frameloom.config import config
from frameloom.errors import Break, VerifyError
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

Node = torch.fx.Node
aten = torch.ops.aten
# Autograd makes their operands contiguous; otherwise they would read other memory.
MADE_CONTIGUOUS = frozenset({aten.native_group_norm_backward.default})
CHANNELS_LAST = {4: (torch.channels_last,), 5: (torch.channels_last_3d,)}
# On nodes that the program's own `backward` has inspected, or made contiguous: it gets a copy with the layout
# of the recording.
PINNED = "pinned"


def relayout(graph: torch.fx.Graph, layouts: Sequence[Layout]) -> bool:
    """Changes `graph`, whose last placeholders are for gradients, to these layouts of the gradients. Returns
    whether that changes its results. The remaining summand of a sum gets its own layout, too."""
    places = graph.find_nodes(op="placeholder")
    sizes = [p.meta["val"] for p in places if isinstance(p.meta["val"], Size)]
    if not sizes:
        views = [
            n for n in graph.nodes if config.verify and is_view(n) and _matches_inferred_layout(n)
        ]
        differs = propagate_layouts(graph, layouts)
        for node in views:
            if not node._erased and not _matches_inferred_layout(node):
                raise VerifyError(
                    f"{node.format_node()} has another layout than the one inferred from its operands"
                )
        return differs
    shape_env = sizes[0].shape_env
    shape_env.inferred.clear()
    shape_env.assumed_sizes.clear()
    # Layouts differ where sizes are equal or 1, unlike loops, so each assumption becomes a condition.
    before, shape_env.relaxed = shape_env.relaxed, False
    try:
        differs = propagate_layouts(graph, layouts)
        # Not checked whether the assumptions are visible: a pass in which they fail runs op by op.
        shape_env.assume_sizes()
    finally:
        shape_env.relaxed = before
        shape_env.inferred.clear()  # they hold only under this graph's conditions
        shape_env.assumed_sizes.clear()
    return differs


def propagate_layouts(graph: torch.fx.Graph, layouts: Sequence[Layout]) -> bool:
    """Does the work of `relayout`, under the current recording's assumptions about sizes."""
    propagation = _LayoutPropagation(graph)
    places = graph.find_nodes(op="placeholder")
    for node, layout in zip(places[len(places) - len(layouts) :], layouts, strict=True):
        like = node.meta["val"]
        propagation.set_layout(node, empty_strided(like.shape, layout.strides, like.dtype))
    seeds = {*propagation.changed}
    differs = False
    for node in list(graph.nodes):
        if LEFT in node.meta:
            # Until now, its value had the layout of the sum.
            differs |= node.args[0] in propagation.changed
            propagation.set_layout(node, node.args[0].meta["val"])
            node.meta.pop(LEFT)
        elif any(a in propagation.changed for a in node.all_input_nodes) and node.op != "output":
            propagation.propagate(node)
    ends: Any = graph.output_node().args[0]
    return differs or any(end in propagation.changed or base_of(end) in seeds for end in ends)


def forwarded_gradients(
    graph: torch.fx.Graph, count: int
) -> tuple[tuple[int, ...], torch.fx.Graph]:
    """Returns which results are views of the last `count` placeholders, and a graph that computes them."""
    places = graph.find_nodes(op="placeholder")
    given = {*places[len(places) - count :]}
    ends: Any = graph.output_node().args[0]
    indices = [k for k, end in enumerate(ends) if base_of(end) in given]
    wanted = [ends[k] for k in indices]
    needed = behind(wanted, lambda n: n.all_input_nodes)
    own = [n for n in graph.nodes if n in needed and n.op != "placeholder"]
    return tuple(indices), graph_of(places, own, wanted)


def base_of(node: Node) -> Node:
    """Returns the base of a view; stops at a tensor that is copied first."""
    while is_view(node) and node.target is not aten.view_as_complex.default:
        if PINNED in node.meta:
            break
        node = node.args[0]  # type: ignore[assignment]
    return node


class _LayoutPropagation:
    """Infers layouts again. `changed`: per node with a new layout, its value in the recording."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.changed: dict[Node, Any] = {}
        self._first = next(n for n in graph.nodes if n.op != "placeholder")
        self._sizes = given_sizes(graph)
        self._restored: dict[Node, Node] = {}
        self._propagated: set[Node] = set()  # nodes that were followed before their turn

    def set_layout(self, node: Node, meta: Any) -> None:
        before = node.meta["val"]
        if not _has_same_layout(before, meta):
            self.changed[node] = before
            node.meta["val"] = now = _fakes(meta, before)
            if PINNED in node.meta and not (before.is_contiguous() and now.is_contiguous()):
                self._pin(node)

    def propagate(self, node: Node) -> None:
        if node in self._propagated:
            return
        if node.target is operator.getitem:
            several, k = node.args
            self.set_layout(node, several.meta["val"][k])  # type: ignore[union-attr]
            return
        if (written := self._written(node)) is not None:
            self.set_layout(node, written.meta["val"])
            return
        if _copies_for_views(node) and self._needs_no_copy(node):
            for user in list(node.users):
                user.replace_input_with(node, node.args[0])  # type: ignore[arg-type]
                self.set_layout(user, _inferred(user))
                self._propagated.add(user)
            self.graph.erase_node(node)
            return
        if node.target in MADE_CONTIGUOUS or not self._is_known(node):
            self._restore(node)
            return
        if not _can_be_read(node):
            self._copy_before(node)
        try:
            self.set_layout(node, _inferred(node))
        except (RuntimeError, Break):
            self._restore(node)

    def _written(self, node: Node) -> Node | None:
        """Returns the operand that the program writes there, in place."""
        val = node.meta["val"]
        return next(
            (n for n in node.all_input_nodes if self.changed.get(n, n.meta["val"]) is val), None
        )

    def _needs_no_copy(self, node: Node) -> bool:
        return all(_has_view(node.args[0], user.args[1]) for user in node.users)

    def _is_known(self, node: Node) -> bool:
        """Whether our inference gives the layout of its result: it must give the recorded layout for the
        recorded operands."""
        target: Any = node.target
        if not isinstance(target, torch._ops.OpOverload) or target is aten.as_strided.default:
            return False
        if draws(node):  # draws follow the order of memory
            return False
        now = {n: n.meta["val"] for n in node.all_input_nodes if n in self.changed}
        try:
            for n in now:
                n.meta["val"] = self.changed[n]
            return _matches_inferred_layout(node)
        except (RuntimeError, Break):
            return False
        finally:
            for n, val in now.items():
                n.meta["val"] = val

    def _copy_before(self, node: Node) -> None:
        of: Any = node.args[0]
        like = of.meta["val"]
        plain = empty_strided(like.shape, strides_of(like.shape), like.dtype)
        copy = self._clone(of, node, torch.contiguous_format, Fake(plain, like.device))
        copy.meta.update({k: v for k, v in node.meta.items() if k != "val"})
        node.replace_input_with(of, copy)

    def _clone(self, of: Node, user: Node, format: torch.memory_format, like: Fake) -> Node:
        with self.graph.inserting_before(user):
            return call_like(
                self.graph, of, aten.clone.default, (of,), {"memory_format": format}, val=like
            )

    def _restore(self, node: Node) -> None:
        """Gives the node its operands in the layouts of the recording."""
        for of in node.all_input_nodes:
            if of in self.changed:
                if of not in self._restored:
                    self._restored[of] = self._as_before(of, node)
                node.replace_input_with(of, self._restored[of])

    def _pin(self, node: Node) -> None:
        """Makes all readers of the node read a copy from now on, whatever layout the node gets."""
        del node.meta[PINNED]
        users, like = list(node.users), self.changed[node]
        formats = [torch.contiguous_format, *CHANNELS_LAST.get(like.dim(), ())]
        format = next((f for f in formats if like.is_contiguous(memory_format=f)), None)
        if format is None:
            made = self._as_before(node, node.next)
        else:
            made = self._clone(node, node.next, format, like)
        for user in users:
            user.replace_input_with(node, made)

    def _as_before(self, of: Node, user: Node) -> Node:
        like = self.changed[of]
        with self.graph.inserting_before(self._first):
            numbers = [[*map(self._sizes.node, some)] for some in (like.shape, like.stride())]
        with self.graph.inserting_before(user):
            kwargs = {"dtype": like.dtype, "device": like.device}
            args, val = tuple(numbers), Fake(like.meta, like.device)
            empty = call_like(self.graph, of, aten.empty_strided.default, args, kwargs, val=val)
            val = Fake(like.meta, like.device)
            return call_like(self.graph, of, aten.copy.default, (empty, of), val=val)


def _matches_inferred_layout(node: Node) -> bool:
    """Whether its layout is the one inferred from its operands."""
    return _has_same_layout(node.meta["val"], _inferred(node))


def _inferred(node: Node) -> Any:
    func: Any = node.target
    meta = infer_node(func, node.args, node.kwargs)
    args, kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), value_of)  # type: ignore[misc]
    meta = on_device(device_of(func, node.args, node.kwargs), func, meta, args, kwargs)
    return summed(node, meta)


def value_of(a: Any) -> Any:
    return a.meta["val"] if isinstance(a, Node) else a


def _fakes(meta: Any, like: Any) -> Any:
    if isinstance(meta, Fake):
        return meta
    if isinstance(meta, torch.Tensor):
        return Fake(meta, like.device)
    if isinstance(meta, list | tuple):
        return tuple(map(_fakes, meta, like))
    return meta


def _has_same_layout(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return all(map(_has_same_layout, a, b))
    if not isinstance(a, torch.Tensor):
        return True
    # Gradients do not start at the start of their memory, so offsets count from their own start.
    numbers = zip((*a.stride(), a.storage_offset()), (*b.stride(), b.storage_offset()), strict=True)
    return all(same(m, n) for m, n in numbers)


def _copies_for_views(node: Node) -> bool:
    """Whether it is a copy before views, as `reshape` makes it where no such view exists."""
    return (
        node.target is aten.clone.default
        and node.kwargs.get("memory_format") is torch.contiguous_format
        and bool(node.users)
        and all(user.target is aten.view.default for user in node.users)
    )


def _can_be_read(node: Node) -> bool:
    """Whether autograd gives the op its operand without a copy."""
    of: Any = node.args[0]
    if node.target is aten.view_as_complex.default:
        return of.meta["val"].is_contiguous()  # type: ignore[no-any-return]
    return node.target is not aten.view.default or _has_view(*node.args)


def _has_view(of: Any, shape: Any) -> bool:
    like = of.meta["val"]
    shape = [value_of(n) for n in shape]
    if isinstance(like, Sized):
        sizes = infer_size(shape, like.shape)
        return sizes is not None and view_strides(sizes, like.shape, like.stride()) is not None
    try:
        like.meta.view(shape)
    except RuntimeError:
        return False
    return True


def copy_with_layout(n: Node, like: Fake, recorder: Recorder) -> Node:
    """Returns a copy of `n` with the layout of `like`, which is contiguous except for strides of dimensions
    of size 1."""
    graph, shape = recorder.graph, tuple(like.shape)
    plain, laid = (
        Fake(empty_strided(shape, strides, like.dtype), like.device)
        for strides in (strides_of(shape), like.stride())
    )
    # whatever layout the gradient has in a pass
    contiguous = {"memory_format": torch.contiguous_format}
    copy = call_like(graph, n, aten.clone.default, (n,), contiguous, val=plain)
    layout = torch.fx.node.map_aggregate((shape, like.stride()), recorder.node_of)
    return call_like(graph, n, aten.as_strided.default, (copy, *layout), val=laid)
