"""Random numbers that a backward pass draws again instead of reading saved ones, from the former state of the
generator.

`note_state` makes the forward graph read the generator's state before an op draws. `copy_recomputed` makes
the op in the backward graph, which gets that state and leaves the generator unchanged. A dropout mask needs
only the layout of the tensor. Both are operators of our own, and library calls of a plan."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from frameloom.capture.recording.captured_graph import call_like, copy_node
from frameloom.capture.symbolic.saved_sizes import given_sizes
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.own_ops import own_op
from frameloom.capture.tensors.schema import draws
from frameloom.ir.symbolic.expr import hint_of

aten = torch.ops.aten
Node = torch.fx.Node
STATE = "state"  # on a node that draws: the node of the generator's state before the draw
CPU = torch.device("cpu")
# Only the layout of their operand matters.
LIKE = frozenset({aten.empty_like.default, aten.rand_like.default, aten.randn_like.default})
STATE_BYTES = {"cpu": torch.get_rng_state().numel(), "cuda": 16}


def operands_of(node: Node) -> list[Node]:
    """Returns what computing the node again reads."""
    state = node.meta.get(STATE)
    if node.target is operator.getitem and state is not None:
        return [state]  # part of dropout, whose own result is not needed
    operands = node.all_input_nodes
    if node.target in LIKE:
        operands = [a for a in operands if a is not node.args[0]]
    return operands if state is None else [*operands, state]


def can_be_redrawn(node: Node) -> bool:
    """Whether its random numbers depend only on the state of the generator, and are larger than that
    state."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or not draws(node):
        return False
    value = node.meta["val"]
    results = value if isinstance(value, tuple) else (value,)
    if node.kwargs.get("generator") is not None or target._schema.is_mutable:
        return False
    if not all(isinstance(v, Fake) for v in results):
        return False
    size = sum(hint_of(v.numel()) * v.dtype.itemsize for v in results)
    return bool(size > STATE_BYTES[results[0].device.type])


def note_state(graph: torch.fx.Graph, node: Node) -> None:
    device = _device(node)
    with graph.inserting_before(node):
        state = graph.call_function(_state_op(), (device,))
    size = STATE_BYTES[device.type]
    state.meta.update(
        val=Fake(torch.empty(size, dtype=torch.uint8, device="meta"), CPU),
        stack=node.meta.get("stack", ""),
        grad=False,
    )
    node.meta[STATE] = state
    for user in node.users:
        if node.target is aten.native_dropout.default and user.args[1] == 1:
            user.meta[STATE] = state


def forget_state(graph: torch.fx.Graph, node: Node) -> None:
    state = node.meta[STATE]
    for n in (node, *node.users):
        n.meta.pop(STATE, None)
    graph.erase_node(state)


def copy_recomputed(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """Makes `node` in a backward graph that has the operands of `operands_of`."""

    if node.target is aten.empty_like.default and any(map(draws, node.users)):
        return _stand_in(graph, node)
    drawn: Any = node
    if STATE in node.meta and node.target is operator.getitem:
        drawn = node.args[0]
        if drawn in copies:
            return copy_node(graph, node, copies.__getitem__)
    spare = drawn.args[0] if drawn is not node or node.target in LIKE else None

    def operand(n: Node) -> Node:
        return _stand_in(graph, n) if n is spare and n not in copies else copies[n]

    if STATE not in node.meta:
        return copy_node(graph, node, operand)
    made = _redraw(graph, drawn, operand)
    return made if drawn is node else call_like(graph, node, operator.getitem, (made, node.args[1]))


def copy_with(
    graph: torch.fx.Graph, node: Node, recomputed: set[Node], copies: dict[Node, Node]
) -> None:
    """Copies `node` after the nodes that it needs and that are recomputed. These come as late as
    possible, to keep their lifetimes short."""
    stack = [node]
    while stack:
        n = stack[-1]
        operands = n.all_input_nodes if _with_its_parent(n, recomputed) else operands_of(n)
        missing = [a for a in operands if a not in copies and a in recomputed]
        if missing and n not in copies:
            stack += reversed(missing)
            continue
        stack.pop()
        if n not in copies:
            copies[n] = copy_recomputed(graph, n, copies)


def _with_its_parent(n: Node, recomputed: set[Node]) -> bool:
    """Whether it is a part of a result that is recomputed anyway."""
    return n.target is operator.getitem and n.args[0] in recomputed


def _redraw(graph: torch.fx.Graph, node: Node, operand: Callable[[Node], Node]) -> Node:
    given = {name: a for name, a in node.kwargs.items() if name != "generator"}
    args, kwargs = torch.fx.node.map_arg((node.args, given), operand)
    op, state = _op_with_state(node.target), operand(node.meta[STATE])
    return call_like(graph, node, op, (state, *args), kwargs)


def _stand_in(graph: torch.fx.Graph, node: Node) -> Node:
    """Makes another tensor of the same layout; a library call, because nothing has to be written there."""
    val, sizes = node.meta["val"], given_sizes(graph)
    shape, strides = ([*map(sizes.node, numbers)] for numbers in (val.shape, val.stride()))
    given = (shape, strides, val.dtype, val.device)
    return call_like(graph, node, _uninitialised_op(), given)


def _device(node: Node) -> torch.device:
    value = node.meta["val"]
    first: Any = value[0] if isinstance(value, tuple | list) else value
    return first.device  # type: ignore[no-any-return]


# --- the operators


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _set_random_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)


def _uninitialised(size: Any, stride: Any, dtype: Any, device: Any) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


@functools.cache
def _state_op() -> Any:
    seeded = (torch.Tag.nondeterministic_seeded,)  # its order among the draws matters
    return own_op("random_state(Device device) -> Tensor", _random_state, seeded)


@functools.cache
def _uninitialised_op() -> Any:
    schema = "uninitialised(int[] size, int[] stride, ScalarType dtype, Device device) -> Tensor"
    return own_op(schema, _uninitialised)


@functools.cache
def _op_with_state(op: Any) -> Any:
    """Returns a version of `op` that takes the generator's state as its first argument."""
    schema = op._schema
    name = f"redrawn_{schema.name.replace('::', '_')}_{op._overloadname}"
    text = str(schema)
    given = text[text.index("(") + 1 : text.rindex(") ->")].split(", ")
    given = [a for a in given if not a.startswith("Generator")]
    if given and given[-1] == "*":
        given.pop()
    returned = text[text.rindex("->") :]
    return own_op(f"{name}(Tensor state, {', '.join(given)}) {returned}", _from_state(op))


def _from_state(op: Any) -> Callable[..., Any]:
    def run(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        device = _device_of(args, kwargs)
        now = _random_state(device)
        _set_random_state(device, state)
        try:
            return op(*args, **kwargs)
        finally:
            _set_random_state(device, now)

    return run


def _device_of(args: Any, kwargs: Any) -> torch.device:
    device = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    return torch.device(device or kwargs.get("device") or "cpu")
