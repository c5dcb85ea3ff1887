"""What the forward graph keeps for the backward graph: a minimum cut between the two.

Every value that the backward graph reads is either saved or recomputed from what is saved. Saving costs
the value's bytes, written once and read once; computing elementwise ops again costs nothing but their
operands, as they are fused into their readers. The cheapest choice for a whole graph is a minimum cut of a
network whose edges are the values. Source: Jain et al., "Checkmate" (2020), for recomputing as a trade; the
cut is the one of He and Chen's functorch partitioner (2022), reduced to elementwise ops.

In a checkpointed region (`Region`) everything is recomputed, and only the states of random number
generators are saved (`autograd/redrawn.py`). With a budget for saved bytes, other ops may be recomputed,
too, at a cost; the price of a byte rises until the saved values fit.

A tensor that the program can reach and change is saved only where eager saves it, too, so that a change is
noticed in the same cases as in eager."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from frameloom.capture.autograd.checkpoint_regions import REGION, memory_of
from frameloom.capture.autograd.gradient_flow import passes_reading
from frameloom.capture.autograd.redrawn import STATE, operands_of
from frameloom.capture.shapes.plain_layouts import base_of
from frameloom.capture.tensors.schema import draws, is_view
from frameloom.errors import Break
from frameloom.ir.numbers import is_number
from frameloom.ir.strides import overlaps
from frameloom.ir.symbolic.expr import hint_of

Node = torch.fx.Node
aten = torch.ops.aten
SOURCE, SINK = "source", "sink"
# Elementwise, but PyTorch does not mark them so.
ELEMENTWISE = {aten.clone.default, aten._to_copy.default, aten.copy.default}
NEVER = float("inf")
AVOIDED = 1e18  # a finite cost that no saved value is worth
# Names in functions that may write to tensors without autograd's notice.
UNNOTICED = frozenset({
    "data", "set_", "numpy", "asarray", "__array__", "storage", "untyped_storage", "data_ptr", "from_dlpack",
    "__dlpack__", "swap_tensors", "_unsafe_preserve_version_counter",
})  # fmt: skip
PRODUCTS = 100.0  # this many multiplications take about as long as moving a byte
HIGHEST, STEPS = 1e9, 12  # bounds of the search for a price


@dataclass(frozen=True)
class CutProblem:
    """The input of the cut.

    `order`: the nodes of the forward graph that the backward graph depends on; `read`: those that it reads
    itself; `free`: those that are kept anyway; `never`: those that must not be saved; `copied`: those of
    which a copy would be saved; `once`: those that are saved rather than recomputed; `apart`: those for
    which this holds with a budget, too."""

    order: Sequence[Node]
    read: Collection[Node]
    free: Collection[Node]
    never: Collection[Node]
    copied: Collection[Node]
    once: Collection[Node] = ()
    apart: Collection[Node] = ()


def choose(problem: CutProblem, budget: int | float | None) -> set[Node]:
    """Returns the nodes to save. `budget`: the maximum number of bytes, or as a float the share of what would
    be saved without a budget."""
    saved = _cut(problem)
    if budget is None:
        return saved
    most = budget * _bytes(saved, problem) if isinstance(budget, float) else float(budget)
    if _bytes(saved, problem) <= most:
        return saved
    return _within(problem, most, saved)


def _within(problem: CutProblem, most: float, saved: set[Node]) -> set[Node]:
    """Saves at most `most` bytes, or as few as possible, and within that as much as helps."""
    low, high = 0.0, 1.0  # prices of a byte; at `low`, too much is saved
    fits = _cut(problem, high)
    while _bytes(fits, problem) > most and high < HIGHEST:
        low, high, saved = high, high * 16, fits
        fits = _cut(problem, high)
    for _ in range(STEPS):
        middle = (low + high) / 2 if low else high / 16
        between = _cut(problem, middle)
        if _bytes(between, problem) > most:
            low, saved = middle, between
        else:
            high, fits = middle, between
    # Ops with equal benefit get the same decision at any price, so the remaining room is filled one by one.
    room = most - _bytes(fits, problem)
    for node in problem.order:
        if node in saved and node not in fits and 0 < (size := _size(node)) <= room:
            fits = fits | {node}
            room -= size
    used = reached(problem.order, problem.read, fits)[1]
    return {n for n in fits if n in used}


def reached(
    order: Sequence[Node], read: Iterable[Node], saved: Collection[Node]
) -> tuple[set[Node], set[Node]]:
    """Returns what the backward graph computes again for its reads, and which saved values it needs."""
    wanted = set(read)
    recomputed: set[Node] = set()
    for n in reversed(order):
        if n in wanted and n not in saved:
            recomputed.add(n)
            wanted.update(operands_of(n))
    return recomputed, {n for n in saved if n in wanted}


def read_for_others(
    order: Sequence[Node], readers: Mapping[Node, Collection[int]], visible: Collection[Node]
) -> set[Node]:
    """Returns the values that must not be recomputed from `visible`. Eager has saved those tensors only
    for passes from other results, and does not check them for changes in this pass. `readers`: the results
    whose passes read a value."""
    wanted = passes_reading(order, readers, {*order})
    saved_for: dict[int, set[int]] = {}
    for n, entries in readers.items():
        saved_for.setdefault(id(memory_of(n)), set()).update(entries)
    return {
        n
        for n in order
        if not is_view(n)
        for a in map(base_of, operands_of(n))
        if a in visible and not wanted[n] <= saved_for.get(id(memory_of(a)), set())
    }


def computed_from(order: Sequence[Node], visible: Collection[Node]) -> set[Node]:
    """Returns the values that eager has computed before any unnoticed write to `visible`, and saves if they
    are read."""
    return {
        n for n in order if not is_view(n) and any(base_of(a) in visible for a in operands_of(n))
    }


def is_repeated(node: Node) -> bool:
    """Whether elements share memory; those of a copy never do."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and overlaps(value.shape, value.stride())


def given_to(nodes: Iterable[Node]) -> set[Node]:
    """Returns the inputs that the nodes read directly or through views."""
    given = (base_of(a) for n in nodes for a in n.all_input_nodes)
    return {a for a in given if a.op == "placeholder"}


def _cut(problem: CutProblem, price: float | None = None) -> set[Node]:
    """Returns the nodes to save at this price of a saved byte. With a price, ops that are not elementwise may
    be recomputed; with None, they may not."""
    import networkx as nx  # PyTorch needs it, too; slow to import

    network = nx.DiGraph()
    order = problem.order
    inside = set(order)
    stays = {*problem.apart} if price is not None else {*problem.once, *problem.apart}
    for k, node in enumerate(order):
        name = str(node.name)
        if node in problem.never:
            cost = NEVER
        elif node in problem.free:
            cost = 0.0
        else:
            cost = _cost(node) * (2.0 if node in problem.copied else 1.0) * (price or 1.0)
        network.add_edge((name, 0), (name, 1), capacity=cost)
        recomputing = _recompute_cost(node, price is not None)
        if node in stays and cost < AVOIDED:
            recomputing = NEVER
        if recomputing == NEVER:
            network.add_edge(SOURCE, (name, 0))
        elif recomputing:
            # Among ops of equal cost, saving the later ones is preferred.
            network.add_edge(SOURCE, (name, 0), capacity=recomputing * (1 + k / len(order)))
        for operand in operands_of(node):
            if operand in inside:
                network.add_edge((operand.name, 1), (name, 0))
    for node in problem.read:
        if node in inside:
            network.add_edge((node.name, 1), SINK)
    if SINK not in network or SOURCE not in network:
        return set()
    try:
        _, (before, _) = nx.minimum_cut(
            network, SOURCE, SINK, flow_func=nx.algorithms.flow.boykov_kolmogorov
        )
    except nx.NetworkXUnbounded:
        raise Break("gradient", "what a gradient depends on is changed in place") from None
    return {n for n in order if (n.name, 0) in before and (n.name, 1) not in before}


def _bytes(saved: Iterable[Node], problem: CutProblem) -> int:
    return sum(_size(n) for n in saved if n not in problem.free)


def _size(node: Node) -> int:
    value = node.meta.get("val")
    if node.op == "get_attr" or not isinstance(value, torch.Tensor):
        return 0
    return hint_of(value.numel()) * value.dtype.itemsize


def _cost(node: Node) -> float:
    """Returns the bytes moved to save it; infinite where that is impossible."""
    value = node.meta.get("val")
    if node.op == "get_attr" or (is_number(node) and node.op == "placeholder"):
        return 0.0
    if not isinstance(value, torch.Tensor) or is_view(node):
        return NEVER
    region = node.meta.get(REGION)
    if region is not None and not region.is_result and not _stays_drawn(node):
        return AVOIDED
    return 2.0 * _size(node) + 1.0


def _recompute_cost(node: Node, everything: bool) -> float:
    """Returns the cost of computing it in the backward pass, in bytes moved; 0 where it is fused into its
    reader; infinite where it would not have the same bits, or must not be recomputed."""
    if node.op != "call_function" or _stays_drawn(node):
        return NEVER
    region = node.meta.get(REGION)
    if region is not None and not region.recomputed and not (is_view(node) or is_number(node)):
        return NEVER  # eager has saved the result for the rest of the program
    if STATE in node.meta:
        return _moved(node.args[0] if node.target is operator.getitem else node)  # type: ignore[arg-type]
    if _is_fused(node):
        return 0.0
    if not (everything or region is not None) or node.target is aten.copy_.default:
        return NEVER
    if node.target is operator.getitem:
        return 0.0 if _recompute_cost(node.args[0], everything) < NEVER else NEVER  # type: ignore[arg-type]
    return sum(map(_moved, (node, *node.all_input_nodes))) + _products(node) / PRODUCTS


def _moved(node: Node) -> float:
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple | list) else (value,)
    return sum(
        float(hint_of(p.numel()) * p.dtype.itemsize) for p in parts if isinstance(p, torch.Tensor)
    )


def _products(node: Node) -> float:
    """Returns roughly how many multiplications a library call does."""
    operands = [v for a in node.all_input_nodes if isinstance(v := a.meta.get("val"), torch.Tensor)]
    value = node.meta.get("val")
    result = value[0] if isinstance(value, tuple | list) else value
    name: str = getattr(node.target, "_opname", "")
    if not isinstance(result, torch.Tensor) or not operands:
        return 0.0
    count = hint_of(result.numel())
    if name.endswith("mm"):  # mm, bmm, addmm, ...; not cummax
        return count * float(hint_of(operands[-2 if len(operands) > 1 else 0].shape[-1]))
    if "convolution" in name and len(operands) > 1:
        weight = operands[1]
        return count * float(hint_of(weight.numel())) / max(hint_of(weight.shape[0]), 1)
    if "attention" in name:
        return count * float(hint_of(operands[0].shape[-2])) * 2
    return 0.0


def _stays_drawn(node: Node) -> bool:
    """Whether it draws random numbers that cannot be drawn again."""
    return draws(node) and STATE not in node.meta


def _is_fused(node: Node) -> bool:
    """Whether it is computed with the same bits and at almost no cost, fused into its readers."""
    target: Any = node.target
    if is_view(node) or is_number(node):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False  # getitem: the same as the op that returns the tuple
    return torch.Tag.pointwise in target.tags or target in ELEMENTWISE
