"""Constant folding: `evaluate` computes once what depends only on constants (options={"freezing": True}).

Constants are the tensors that `get_attr` nodes name; only nodes that depend on one of `frozen` are folded.
Some of them stay in the graph: values that calls must not share (outputs and random numbers), views of
constants, which cost nothing, and values that take more memory than the constants that they are computed
from.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from frameloom.ir.lower.geometry import base_of, is_tensor
from frameloom.ir.program import leaves

Node = torch.fx.Node
MAX_SMALL_BYTES = 1 << 20  # bytes that a result may always take


class Constants:
    """A graph with its constants; passes change both in place."""

    def __init__(self, graph: torch.fx.Graph, holder: torch.nn.Module) -> None:
        """Copies `graph`, and puts the tensors of `holder` into a new module."""
        self.graph = torch.fx.Graph()
        self.graph.output(self.graph.graph_copy(graph, {}))
        self.holder = torch.nn.Module()
        for name, tensor in holder.named_buffers(remove_duplicate=False):
            self.holder.register_buffer(name, tensor)
        self._n_added = 0

    def value(self, node: Any) -> Any:
        """Returns the tensor of a `get_attr` node, else None."""
        return getattr(self.holder, node.target) if is_constant(node) else None

    def add(self, tensor: torch.Tensor, before: Node) -> Node:
        """Adds a constant and returns its node."""
        name = f"computed_{self._n_added}"
        self._n_added += 1
        self.holder.register_buffer(name, tensor)
        with self.graph.inserting_before(before):
            node = self.graph.create_node("get_attr", name)
        node.meta.update({k: v for k, v in before.meta.items() if k == "stack"}, val=tensor)
        return node

    def drop_unused(self) -> None:
        """Removes the constants that no node reads."""
        for node in list(self.graph.nodes):
            if is_constant(node) and not node.users:
                self.graph.erase_node(node)


def is_constant(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "get_attr"


@contextmanager
def computing() -> Iterator[None]:
    """Inside, ops on real tensors run without dispatch modes and return ordinary tensors."""
    with torch.inference_mode(False), torch.no_grad(), torch._C._DisableTorchDispatch():
        yield


def evaluate(constants: Constants, frozen: Collection[str]) -> None:
    """Replaces values that depend only on `frozen` and other constants by constants."""
    depends = _dependent(constants.graph, frozen)
    returned = {
        base_of(n)[0] for n in leaves(constants.graph.output_node().args[0]) if isinstance(n, Node)
    }
    values: dict[Node, Any] = {}
    for node in depends:
        if node.op == "get_attr" or all(user in depends for user in node.users):
            continue
        if base_of(node)[0].op == "get_attr" or base_of(node)[0] in returned:
            continue
        with computing():
            value = _value(node, constants, values)
        if is_tensor(value) and _same_geometry(value, node.meta["val"]) and _is_small(node, value):
            node.replace_all_uses_with(constants.add(value, node))
    for node in reversed(depends):
        if not node.users and node.op != "get_attr":
            constants.graph.erase_node(node)


def _dependent(graph: torch.fx.Graph, frozen: Collection[str]) -> dict[Node, None]:
    """Returns the nodes that are computed from constants alone, at least one of them in `frozen`, in graph
    order."""
    constant: dict[Node, bool] = {}  # whether a node depends on one of `frozen`
    for node in graph.nodes:
        if node.op == "get_attr":
            constant[node] = node.target in frozen
        elif node.op == "call_function" and _is_foldable(node, constant):
            constant[node] = any(constant[n] for n in node.all_input_nodes)
    return {node: None for node, depends in constant.items() if depends}


def _is_foldable(node: Node, constant: Collection[Node]) -> bool:
    target: Any = node.target
    if any(n not in constant for n in node.all_input_nodes):
        return False
    if target is operator.getitem:
        return True
    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable or not schema.returns:
        return False
    return torch.Tag.nondeterministic_seeded not in target.tags


def _value(node: Node, constants: Constants, values: dict[Node, Any]) -> Any:
    """Returns the value of the node; None if the computation fails; the call then reports the error."""
    waiting = [node]
    while waiting:
        at = waiting[-1]
        missing = [n for n in at.all_input_nodes if n not in values]
        if missing and at.op != "get_attr":
            waiting += missing
            continue
        waiting.pop()
        if at in values:
            continue
        if at.op == "get_attr":
            values[at] = constants.value(at)
            continue
        args, kwargs = torch.fx.node.map_arg((at.args, at.kwargs), values.__getitem__)
        try:
            failed = any(values[n] is None for n in at.all_input_nodes)
            values[at] = None if failed else at.target(*args, **kwargs)  # type: ignore[operator]
        except (RuntimeError, IndexError, ValueError):
            values[at] = None
    return values[node]


def _same_geometry(value: torch.Tensor, seen: Any) -> bool:
    return (
        value.dtype == seen.dtype
        and tuple(value.shape) == tuple(seen.shape)
        and value.stride() == tuple(seen.stride())
    )


def _is_small(node: Node, value: torch.Tensor) -> bool:
    """Whether the value is small compared with the constants that it is computed from."""
    given, waiting, seen = 0, [node], {node}
    while waiting:
        at = waiting.pop()
        given += bytes_of(at.meta["val"]) if at.op == "get_attr" else 0
        waiting += [n for n in at.all_input_nodes if n not in seen]
        seen.update(at.all_input_nodes)
    return bytes_of(value) <= max(MAX_SMALL_BYTES, 2 * given)


def bytes_of(val: Any) -> int:
    return int(val.numel()) * int(val.dtype.itemsize)
