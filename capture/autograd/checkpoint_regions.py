"""Checkpointed regions, and which inputs that they read may change before the backward pass.

Plain PyTorch saves the arguments of a region as autograd saves tensors, and checks that they were not
changed. Other values that the region reads (weights, closure cells) are read when it is recomputed,
changed or not, without a check."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.fx

from frameloom.capture.autograd.history import NO_END, Histories
from frameloom.capture.autograd.redrawn import STATE, operands_of
from frameloom.capture.recording.backward_marks import FROM
from frameloom.capture.recording.captured_graph import copy_node
from frameloom.capture.tensors.schema import draws
from frameloom.errors import Break

Node = torch.fx.Node
REGION = "region"  # in a node's meta: its Region


@dataclass(frozen=True, eq=False)
class NodeRange:
    """A checkpointed part of the program: the sequence numbers of the autograd nodes that it makes, from
    `first` up to but not including `end`."""

    first: int
    end: int
    # per tensor argument: its Memory and the number of its counted writes
    arguments: tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class Region:
    """Marks a node in a part of the program that the user wants recomputed."""

    is_result: bool  # whether the rest of the program reads it, so that it may be saved
    reentrant: bool
    node_range: NodeRange
    recomputed: bool = False  # whether it is recomputed, for the derivative of the region


class Regions:
    """The regions of a recording. `inside`: the memories that eager saves in each region; `outside`: the
    identities of those that it saves for the rest of the program."""

    def __init__(self, graph: torch.fx.Graph, histories: Histories) -> None:
        _refuse_changed(graph)
        self.copies = _with_copies(graph)
        regions = (n.meta.get(REGION) for n in graph.nodes)
        node_ranges = sorted(
            {r.node_range for r in regions if r is not None}, key=lambda s: s.first
        )
        self.inside = {s: histories.saved_between(s.first, s.end) for s in node_ranges}
        for s in node_ranges:
            # Eager refuses, even where the value of the argument is not needed.
            if self.inside[s] and any(m.root.counted != count for m, count in s.arguments):
                raise Break("gradient", "an argument of a checkpointed region is changed in place")
        ends = [0, *(n for s in node_ranges for n in (s.first, s.end)), NO_END]
        spans = [*zip(ends[::2], ends[1::2], strict=True)]
        # Per memory that eager checks: the passes that check it. It is saved to compute regions again, or for
        # the rest of the program.
        self.checked_memories: dict[Any, set[int]] = {}
        for node_range, own in self.inside.items():
            passes = set().union(*own.values())
            self._add((memory, passes) for memory, _ in node_range.arguments)
        for span in spans:
            self._add(histories.saved_between(*span).items())
        self.outside = {id(memory) for memory in self.checked_memories}

    def _add(self, kept: Iterable[tuple[Any, set[int]]]) -> None:
        for memory, passes in kept:
            self.checked_memories.setdefault(memory, set()).update(passes)

    def results(self, nodes: Iterable[Node]) -> set[Node]:
        """Returns the results of regions that eager saves for the rest of the program, and does not compute
        again for it."""
        return {
            n
            for n in nodes
            if (region := n.meta.get(REGION)) is not None
            and region.is_result
            and id(memory_of(n)) in self.outside
        }

    def may_change(
        self,
        kept: Sequence[Node],
        forward: Sequence[Node],
        saved: Collection[Node],
        recomputed: Collection[Node],
    ) -> set[Node]:
        """Returns those of the inputs `kept` that only regions read. It leaves out those where the compiled
        pass could not follow eager with a changed value: where it has one value, but eager has two, the saved
        one and one recomputed for the region."""
        if not self.inside:
            return set()
        candidates = {n for n in kept if id(memory_of(n)) not in self.outside}
        own, copies = {id(memory_of(n)) for n in candidates}, {*self.copies.values()}
        reads: dict[Node, set[Node]] = {n: {n} for n in candidates}
        for n in forward:
            of = set().union(*(reads.get(a, ()) for a in operands_of(n)))
            if n in saved:  # with its former value
                region = n.meta.get(REGION)
                if region is not None and region.recomputed:
                    candidates -= of
                continue
            if of and n in recomputed and n not in copies and id(memory_of(n)) not in own:
                candidates -= of if self._has_single_value(n, recomputed) else set()
            if of:
                reads[n] = of
        return candidates

    def _has_single_value(self, n: Node, recomputed: Collection[Node]) -> bool:
        node_range = _node_range(n)
        others = [own for s, own in self.inside.items() if s is not node_range]
        if node_range is None or any(
            _node_range(u) is not node_range for u in n.users if u in recomputed
        ):
            return True
        memory = memory_of(n)
        return id(memory) in self.outside or any(memory in own for own in others)


def _refuse_changed(graph: torch.fx.Graph) -> None:
    """Breaks where the program changes a tensor after a region that reads it: eager computes the region again
    from the changed tensor."""
    if not any(REGION in n.meta for n in graph.nodes):
        return
    place = {n: k for k, n in enumerate(graph.nodes)}
    for n in graph.nodes:
        for a in n.all_input_nodes if REGION in n.meta else ():
            memory = memory_of(a)
            if memory is None or not memory.version or _node_range(a) is _node_range(n):
                continue
            written = memory.root.node
            if place[written] > place[n] and _node_range(written) is not _node_range(n):
                raise Break("gradient", "what a checkpointed region reads is changed in place")


def _with_copies(graph: torch.fx.Graph) -> dict[Node, Node]:
    """Copies what the derivative of a region reads of the region, with all nodes of the region that it
    depends on. Eager computes these again for the derivative, from the current values, but keeps the saved
    ones for the rest of the program. Returns the copies per copied node."""
    nodes = list(graph.nodes)
    derivative: list[tuple[Node, Node]] = []  # nodes of derivatives, and what they read
    for user in nodes:
        if (number := user.meta.get(FROM)) is None:
            continue
        for n in user.all_input_nodes:
            node_range = _node_range(n)
            if node_range is not None and node_range.first <= number < node_range.end:
                derivative.append((user, n))
    wanted = {n for _, n in derivative}
    for n in reversed(nodes):
        if n in wanted:
            wanted.update(a for a in n.all_input_nodes if _node_range(a) is _node_range(n))
    drawn = {n for n in wanted if not _is_copied(n)}
    for n in reversed(nodes):
        if n in drawn:
            drawn.update(a for a in n.all_input_nodes if _node_range(a) is _node_range(n))
            n.meta[REGION] = replace(n.meta[REGION], recomputed=True)
    copies: dict[Node, Node] = {}
    for n in nodes:
        if n in wanted and _is_copied(n):

            def operand(a: Node) -> Node:
                return copies.get(a, a) if _node_range(a) is _node_range(n) else a

            # Inserted before `n`: nodes after the last node of the recording belong to the derivatives.
            with graph.inserting_before(n):
                copies[n] = copy_node(graph, n, operand)
            copies[n].meta[REGION] = replace(n.meta[REGION], is_result=False, recomputed=True)
    for user, n in derivative:
        user.replace_input_with(n, copies.get(n, n))
    return copies


def _is_copied(n: Node) -> bool:
    """Whether it may be copied: not if it draws random numbers that cannot be drawn again."""
    made_by: Any = n.args[0] if n.target is operator.getitem else n
    return n.op == "call_function" and (STATE in made_by.meta or not draws(made_by))


def _node_range(n: Node) -> NodeRange | None:
    region = n.meta.get(REGION)
    return region and region.node_range


def memory_of(n: Node) -> Any:
    """Returns the Memory of the node's tensor; None if it has none."""
    return getattr(n.meta.get("val"), "memory", None)
