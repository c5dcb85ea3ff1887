"""Isomorphic parts of a graph, which do the same work on different tensors.

Examples are an optimizer's parameters, a loop over a list, and `torch._foreach_` ops.

A *part* is a set of ops that are connected by their results and by the inputs that they write.  Parts with
equal descriptions are lowered to the same steps over different buffers, so only one of them is lowered
(`Program.isomorphic_parts`).  If all ops are elementwise over tensors of one geometry, the description
leaves this geometry out.

A `_foreach_` op counts as one op for each item of its lists.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.ir.lower.geometry import WRITE_BACK, base_of, devices_of, is_tensor
from frameloom.ir.lower.graph_passes.constants import computing
from frameloom.ir.lower.lazy import bits_of
from frameloom.ir.lower.numbers import Scalar
from frameloom.ir.lower.ops.foreach import PLAIN_OF
from frameloom.ir.lower.table import ELEMENTWISE, Ref
from frameloom.ir.numbers import is_number
from frameloom.ir.program import Buffer, IsomorphicParts, is_cuda, leaves

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering

Node = torch.fx.Node
MIN_PARTS = 4  # parts; with fewer, it does not pay
MAX_COMPARED_ELEMENTS = 16  # constants with at most so many elements are compared by value
UNFIT = frozenset({"aten._assert_async.msg", "aten.as_strided.default", "aten._reshape_alias.default", "aten.view.dtype"})  # fmt: skip
MASKED = "aten.index_put.default"
SAME = frozenset({"aten.alias.default", "aten.detach.default"})
_ANY = "any"  # stands for the geometry that all tensors of a part have


@dataclass(eq=False, slots=True)
class _Op:
    """One op; `item`: the item of a `_foreach_` op that it stands for."""

    node: Node
    item: int | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kind: _Kind

    @property
    def value(self) -> Any:
        val: Any = self.node.meta.get("val")
        return val if self.item is None else val[self.item]


@dataclass(eq=False, slots=True)
class _Kind:
    """Properties of an op's target; equal for equal targets, and quick to compare."""

    splits: bool  # whether it counts as an op for each item
    elementwise: bool
    fits: bool
    writes: bool  # whether it writes to an input


@dataclass(eq=False, slots=True)
class Part:
    """`ops` in graph order; `own` in the order of first use: tensors and numbers that no other part uses."""

    ops: list[_Op]
    own: list[Node] = field(default_factory=list)
    # If the part is elementwise: shape and strides of all its tensors with more than one element.
    geometry: tuple[tuple[int, ...], tuple[int, ...]] | None = None


class Unfit(Exception):
    """These ops cannot be a part that is isomorphic to others."""


@dataclass(eq=False, slots=True)
class Repeats:
    """The parts of a graph that are not lowered, because an isomorphic part is lowered in their place."""

    groups: list[list[Part]] = field(default_factory=list)
    shared: set[Node] = field(default_factory=set)
    left_out: set[Node] = field(default_factory=set)
    items: dict[Node, set[int]] = field(default_factory=dict)  # left-out items of `_foreach_` ops

    @staticmethod
    def of(
        nodes: Sequence[Node], constants: torch.nn.Module, visible: Set[tuple[Node, int]]
    ) -> Repeats:
        """Finds the repeated parts.  `visible`: the results that the program sees."""
        if not all(map(_has_plain_sizes, nodes)):
            return Repeats()
        graph = _Graph(nodes, constants, visible)
        parts = graph.parts()
        if len(parts) < MIN_PARTS:
            return Repeats()
        groups: dict[Hashable, list[Part]] = {}
        for part in map(Part, parts):
            with suppress(Unfit, TypeError):  # something that has no hash
                groups.setdefault(graph.description(part), []).append(part)
        repeated = [group for group in groups.values() if len(group) >= MIN_PARTS]
        repeats = Repeats(repeated, graph.shared)
        for op in (op for group in repeated for part in group[1:] for op in part.ops):
            if op.item is None:
                repeats.left_out.add(op.node)
            else:
                repeats.items.setdefault(op.node, set()).add(op.item)
        for node, items in repeats.items.items():
            repeats.left_out |= {n for n in node.users if n.args[1] in items}
        return repeats

    def record_isomorphic_parts(self, lowering: Lowering, ends: Any) -> tuple[IsomorphicParts, ...]:
        """Returns the IsomorphicParts for the parts that are left out, and sets the values of their nodes
        among `ends`."""
        if not self.groups:
            return ()
        known = [lowering.values[n] for n in self.shared]
        shared = frozenset(b for v in known for b in _buffers(v))
        shared |= {
            lowering.numbers.narrow[b].buffer for b in shared & lowering.numbers.narrow.keys()
        }
        returned = {n for n in leaves(ends) if type(n) is Node}
        isomorphic_parts = tuple(
            self._isomorphic_parts(lowering, group, shared, returned) for group in self.groups
        )
        for n in returned & self.left_out:
            if n.target is operator.getitem and n.args[0] in self.items:
                lowering.values[n] = lowering.values[n.args[0]][n.args[1]]  # type: ignore[index]
        return isomorphic_parts

    def _isomorphic_parts(
        self, lowering: Lowering, group: list[Part], shared: frozenset[Buffer], returned: set[Node]
    ) -> IsomorphicParts:
        first = group[0]
        values, narrow = lowering.values, lowering.numbers.narrow
        own: list[Buffer] = []
        for leaf in first.own:
            (buffer,) = _buffers(values[leaf])
            own += [buffer, narrow[buffer].buffer] if buffer in narrow else [buffer]
        n_leaves = len(own)
        results = [_value_of(values, op) for op in first.ops]
        result_buffers = dict.fromkeys(b for v in results for b in _buffers(v))
        own += [b for b in result_buffers if b not in shared and b not in set(own)]
        others = []
        for k, part in enumerate(group[1:], 1):
            theirs: list[Buffer] = []
            for leaf in part.own:
                value = values[leaf]
                theirs += _buffers(value)
                if own[len(theirs) - 1] in narrow:
                    theirs += _buffers(lowering.numbers.in_loops(value))
            theirs += [_corresponding(b, f"{b.name}_of_{k}", first, part) for b in own[n_leaves:]]
            others.append(tuple((b, 0) for b in theirs))
            self._set_results(
                lowering, part, results, dict(zip(own, theirs, strict=True)), returned
            )
        extents = None
        if first.geometry is not None:
            extents = tuple(math.prod(part.geometry[0]) for part in group if part.geometry)
        return IsomorphicParts(tuple(own), tuple(others), shared, extents)

    def _set_results(
        self,
        lowering: Lowering,
        part: Part,
        results: list[Any],
        own: dict[Buffer, Buffer],
        returned: set[Node],
    ) -> None:
        """Sets the values of a left-out part's ops that the graph returns."""
        for op, result in zip(part.ops, results, strict=True):
            if op.kind.writes:
                lowering.values[op.node] = lowering.values[op.node.args[0]]  # type: ignore[index]
            elif op.item is not None:
                items = lowering.values.get(op.node)
                if items is None:
                    items = lowering.values[op.node] = [None] * len(op.node.meta["val"])
                items[op.item] = _rebased(result, op.value, own)
            elif op.node in returned:
                if not isinstance(result, Ref):
                    raise Unfit
                lowering.values[op.node] = _rebased(result, op.value, own)


def _has_plain_sizes(node: Node) -> bool:
    """Whether no size or stride is symbolic."""
    for val in leaves(node.meta.get("val")):
        if is_tensor(val):
            if not all(type(e) is int for e in (*val.shape, *val.stride())):
                return False
        elif isinstance(val, torch.SymInt):
            return False
    return True


def _rebased(ref: Any, val: Any, own: dict[Buffer, Buffer]) -> Ref:
    shape, strides = tuple(map(int, val.shape)), tuple(map(int, val.stride()))
    moved: Ref = replace(ref, buffer=own.get(ref.buffer, ref.buffer), shape=shape, strides=strides)
    return moved


def _value_of(values: dict[Node, Any], op: _Op) -> Any:
    return values[op.node] if op.item is None else values[op.node][op.item]


def _buffers(value: Any) -> list[Buffer]:
    return [v.buffer for v in leaves(value) if isinstance(v, Ref | Scalar)]


def _corresponding(b: Buffer, name: str, first: Part, part: Part) -> Buffer:
    """Returns the buffer of `part` that corresponds to `b` of the first part."""
    if first.geometry is None or math.prod(b.shape) == 1:
        return replace(b, name=name)
    assert part.geometry is not None
    return replace(b, name=name, shape=part.geometry[0], strides=part.geometry[1])


class _Graph:
    def __init__(
        self, nodes: Sequence[Node], constants: torch.nn.Module, visible: Set[tuple[Node, int]]
    ) -> None:
        self.constants = constants
        self.on_gpu = any(is_cuda(d) for n in nodes for d in devices_of(n.meta.get("val")))
        self.ops: list[_Op] = []
        self.number: dict[Node, int] = {}  # node -> number of the op that computes it
        self.needed: set[int] = set()  # ops from which Python numbers are computed
        self.kinds: dict[int, _Kind] = {}  # by the id of the target
        self.first_item: dict[Node, int] = {}
        self.shared: set[Node] = set()
        self.returned: dict[Node, dict[int, bool]] = {}  # ... results -> whether they are visible
        for n in leaves(nodes[-1].args[0]):
            if isinstance(n, Node):
                node, k = base_of(n)
                self.returned.setdefault(node, {})[k] = (node, k) in visible
        for node in nodes:
            if node.op != "call_function":
                continue
            if is_number(node):
                self.needed |= {self.number[n] for n in leaves(node.args) if n in self.number}
            else:
                self._add(node)

    def _add(self, node: Node) -> None:
        target: Any = node.target
        if target is operator.getitem and (first := self.first_item.get(node.args[0])) is not None:  # type: ignore[arg-type]
            self.number[node] = first + int(node.args[1])  # type: ignore[arg-type]
            return
        kind = self.kinds.get(id(target))
        if kind is None:
            kind = self.kinds[id(target)] = _kind(target)
        if not kind.splits or (self.on_gpu and _on_cpu(node.meta["val"])):
            self.number[node] = len(self.ops)
            self.ops.append(_Op(node, None, node.args, node.kwargs, kind))
            return
        self.first_item[node] = len(self.ops)
        lists = [isinstance(a, list | tuple) for a in node.args]
        for k in range(len(node.meta["val"])):
            args = tuple(a[k] if own else a for a, own in zip(node.args, lists, strict=True))  # type: ignore[index]
            self.ops.append(_Op(node, k, args, node.kwargs, kind))

    # --- parts

    def parts(self) -> list[list[_Op]]:
        leader = list(range(len(self.ops)))

        def find(n: int) -> int:
            while leader[n] != n:
                leader[n] = leader[leader[n]]
                n = leader[n]
            return n

        users: dict[Node, list[int]] = {}  # of inputs, constants and common nodes
        written: list[Node] = []
        for n, op in enumerate(self.ops):
            for a in leaves((op.args, *op.kwargs.values())):
                if type(a) is not Node:
                    continue
                earlier = self.number.get(a)
                if earlier is None or self._is_common(a):
                    users.setdefault(a, []).append(n)
                else:
                    leader[find(n)] = find(earlier)
            if op.kind.writes:
                written.append(op.node.args[0])  # type: ignore[arg-type]
        for leaf in written:
            for n in users[leaf]:
                leader[find(n)] = find(users[leaf][0])
        for leaf, user_ops in users.items():
            own = self.number.get(leaf)
            if len({find(n) for n in user_ops}) > 1:
                self.shared.add(leaf)
            elif own is not None:
                leader[find(user_ops[0])] = find(own)
        common = {self.number[n] for n in self.shared if n in self.number}
        parts: dict[int, list[_Op]] = {}
        unfit = {find(n) for n in (*common, *self.needed)}
        for n, op in enumerate(self.ops):
            if (number := find(n)) not in unfit:
                parts.setdefault(number, []).append(op)
        return list(parts.values())

    def _is_common(self, node: Node) -> bool:
        """Whether the node is one element computed only from constants: several parts may use it."""
        val: Any = node.meta.get("val")
        return (
            all(n.op == "get_attr" for n in leaves(node.args) if type(n) is Node)
            and is_tensor(val)
            and math.prod(val.shape) == 1
            and node not in self.returned
        )

    # --- descriptions

    def description(self, part: Part) -> Hashable:
        """Returns a key that is equal for parts that are lowered to the same steps."""
        local = {id(op.node) if op.item is None else (id(op.node), op.item): k for k, op in enumerate(part.ops)}  # fmt: skip
        leaves: dict[Node, Hashable] = {}
        if self.on_gpu and any(_on_cpu(op.value) for op in part.ops):
            raise Unfit
        results = [self._geometry(op.value) for op in part.ops]
        elementwise = all(op.kind.elementwise or _is_masked(op) for op in part.ops)

        def token(a: Any) -> Hashable:
            cls = type(a)
            if cls is Node:
                number = self.number.get(a)
                if number is not None and a not in self.shared:
                    op = self.ops[number]
                    return local.get(id(op.node) if op.item is None else (id(op.node), op.item), -1)
                if a not in leaves:
                    leaves[a] = ("leaf", len(leaves))
                return leaves[a]
            if cls is float:
                return (float, a.hex())
            if isinstance(a, list | tuple):
                return tuple(map(token, a))
            if cls is complex:
                raise Unfit
            return (cls, a)

        key: list[Hashable] = []
        for op in part.ops:
            if not op.kind.fits:
                raise Unfit
            returned = self.returned.get(op.node, {})
            seen = tuple(returned.items()) if op.item is None else returned.get(op.item)
            key.append((op.kind, *map(token, op.args), *((k, token(v)) for k, v in op.kwargs.items()), seen))  # fmt: skip
        leaf_keys = [self._leaf(n) for n in leaves]
        part.own = [n for n in leaves if n not in self.shared]
        if elementwise:
            part.geometry = _one_geometry([*leaf_keys, *results])
        if part.geometry is not None:
            leaf_keys, results = (
                [_without(g, part.geometry) for g in gs] for gs in (leaf_keys, results)
            )
        return (part.geometry is None, tuple(key), tuple(leaf_keys), tuple(results))

    def _geometry(self, val: Any) -> Hashable:
        if isinstance(val, list | tuple):
            return tuple(map(self._geometry, val))
        if val is None:
            return None
        if not is_tensor(val):
            raise Unfit
        shape = tuple(val.shape)
        strides = tuple(s if e > 1 else 0 for e, s in zip(shape, val.stride(), strict=True))
        return (shape, strides, val.dtype, val.device)

    def _leaf(self, node: Node) -> Hashable:
        val: Any = node.meta.get("val")
        if is_number(node):
            return (type(val), id(node) if node in self.shared else None)
        if not is_tensor(val) or val.dtype.is_complex or bits_of(val):
            raise Unfit
        if node in self.shared:
            # Parts that read a large shared tensor are left alone: fused with each other, they load it only
            # once.
            if math.prod(val.shape) > 1:
                raise Unfit
            return ("shared", self._geometry(val), id(node))
        if node.op == "get_attr":
            return ("constant", self._geometry(val), self._contents(node))
        return self._geometry(val)

    def _contents(self, node: Node) -> Hashable:
        tensor = operator.attrgetter(str(node.target))(self.constants)
        if tensor.numel() > MAX_COMPARED_ELEMENTS or tensor.device.type != "cpu":
            raise Unfit
        with computing():
            return (*map(repr, tensor.flatten().tolist()),)


def _kind(target: Any) -> _Kind:
    if target is operator.getitem:
        return _Kind(False, False, True, False)
    name = str(target)
    splits = name in PLAIN_OF
    plain = PLAIN_OF.get(name, name)
    tags = getattr(target, "tags", ())
    # The description leaves out storage offsets, so ops that use them do not fit.
    fits = torch.Tag.nondeterministic_seeded not in tags and name not in UNFIT
    writes = name == WRITE_BACK
    elementwise = writes or plain in ELEMENTWISE or name in SAME
    return _Kind(splits, elementwise, fits, writes)


def _on_cpu(val: Any) -> bool:
    """Whether the value is on the CPU.  In a graph on a GPU, library calls compute such values, and one call
    writes all."""
    return not any(map(is_cuda, devices_of(val)))


def _is_masked(op: _Op) -> bool:
    """Whether the op is `x[mask] = number`."""
    if str(op.node.target) != MASKED or len(op.args[1]) != 1 or any(op.args[3:]):
        return False
    mask, value = (n.meta["val"] for n in (op.args[1][0], op.args[2]))
    same = tuple(mask.shape) == tuple(op.value.shape)
    return mask.dtype is torch.bool and same and math.prod(value.shape) == 1


def _one_geometry(descriptions: list[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns shape and strides of all tensors with more than one element; None if they differ."""
    geometry = None
    for g in descriptions:
        match g:
            case (tuple() as shape, tuple() as strides, *_) if max(shape, default=1) > 1:
                if geometry is None:
                    geometry = (shape, strides)
                elif geometry != (shape, strides):
                    return None
            case ("constant", (shape, *_), _) if max(shape, default=1) > 1:
                return None  # the shape of a constant cannot change
    return geometry if geometry is not None and 0 not in geometry[0] else None


def _without(g: Any, geometry: Any) -> Hashable:
    return (_ANY, *g[2:]) if isinstance(g, tuple) and g[:2] == geometry else g
