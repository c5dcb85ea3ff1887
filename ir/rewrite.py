"""Rewriting by tables of rules: `before -> after` on scalar nodes, exact under the semantics of node.py.

A Rule's `before` is data (a Pattern), so that tests can build and run examples of every rule.  Its `after`
gets the nodes that the pattern's names matched.  It builds the replacement, or returns None to leave the
node.  The tables are in rules/, one file per subject.  FRAMELOOM_FUEL=n stops after n rewrites, to find a
wrong one by bisection.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from frameloom.config import config
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.ops import COMMUTATIVE, LEAVES, Op
from frameloom.ir.program import Program, Store, is_cuda
from frameloom.ir.substitute import transform

Number = bool | int | float


@dataclass(frozen=True)
class Pattern:
    """Matches any node, a node of one op over patterns, or a constant.  Equal names match the same node."""

    op: Op | None = None
    srcs: tuple[Pattern, ...] = ()
    name: str | None = None
    value: Number | None = None  # of a constant


def any_node(name: str) -> Pattern:
    return Pattern(name=name)


def constant(name: str) -> Pattern:
    return Pattern(Op.CONST, name=name)


def exactly(value: Number) -> Pattern:
    """Matches a constant of this value, of any dtype (the sign of zero counts)."""
    return Pattern(Op.CONST, value=value)


def of(op: Op, *srcs: Pattern, name: str | None = None) -> Pattern:
    return Pattern(op, srcs, name)


@dataclass(frozen=True)
class Rule:
    """`dtypes` restricts the dtype of the matched node."""

    before: Pattern
    after: Callable[..., Node | None]
    dtypes: Callable[[DType], bool] = lambda dtype: True


def floats(dtype: DType) -> bool:
    return dtype.is_float


def integers(dtype: DType) -> bool:
    return dtype.is_int


def bools(dtype: DType) -> bool:
    return dtype is DType.BOOL


def match(pattern: Pattern, node: Node, bindings: dict[str, Node]) -> bool:
    """Whether `node` matches; fills in `bindings`."""
    if pattern.op is not None and pattern.op is not node.op:
        return False
    if pattern.value is not None and not _same_number(pattern.value, node.arg):
        return False
    if pattern.name is not None and bindings.setdefault(pattern.name, node) is not node:
        return False
    if not pattern.srcs:
        return True
    if len(pattern.srcs) != len(node.srcs):
        return False
    orders: list[Sequence[Node]] = [node.srcs]
    if node.op in COMMUTATIVE:
        orders.append(node.srcs[::-1])
    for srcs in orders:
        trial = dict(bindings)
        if all(match(p, s, trial) for p, s in zip(pattern.srcs, srcs, strict=True)):
            bindings.update(trial)
            return True
    return False


def _same_number(a: Number, b: Number) -> bool:
    return a == b and math.copysign(1, a) == math.copysign(1, b)


class Rewriter:
    """Applies tables of rules until the fuel is used up."""

    def __init__(self, rules: Sequence[Rule], fuel: int | None = None) -> None:
        # Each rule is stored with the ops that its sources must have, so that most rules are skipped quickly.
        self.by_op: dict[Op, list[tuple[Rule, tuple[Op, ...]]]] = {}
        for rule in rules:
            assert rule.before.op is not None, "a rule starts at an op"
            wanted = tuple(p.op for p in rule.before.srcs if p.op is not None)
            self.by_op.setdefault(rule.before.op, []).append((rule, wanted))
        self.fuel = fuel

    def node(self, node: Node) -> Node | None:
        """Returns the node after all rules that apply to it, or None if none does.  (Its sources are
        rewritten already.)"""
        changed = None
        while (after := self._step(changed or node)) is not None:
            changed = after
        return changed

    def _step(self, node: Node) -> Node | None:
        rules = self.by_op.get(node.op)
        if not rules:
            return None
        ops = [s.op for s in node.srcs]
        for rule, wanted in rules:
            if not all(op in ops for op in wanted):
                continue
            bindings: dict[str, Node] = {}
            if (
                self.fuel == 0
                or not rule.dtypes(node.dtype)
                or not match(rule.before, node, bindings)
            ):
                continue
            after = rule.after(**bindings)
            if after is not None and after is not node:
                assert after.dtype is node.dtype, f"{node} became {after}"
                if self.fuel is not None:
                    self.fuel -= 1
                return after
        return None

    def roots(self, roots: Sequence[Node]) -> list[Node]:
        return transform(roots, self.node, _is_address)


def _is_address(node: Node) -> bool:
    # Offsets are canonical already (index.py), so rules skip them.
    return node.op is Op.LOAD or node.op in LEAVES


@functools.cache
def _rewriter(on_gpu: bool) -> Rewriter:
    from frameloom.ir.rules import ALL_RULES, GPU_RULES  # the rules import this module

    return Rewriter(GPU_RULES if on_gpu else ALL_RULES, config.fuel)


def simplify(program: Program) -> Program:
    """Returns `program` with all rules applied to every kernel."""
    steps = tuple(
        s.with_stores(lambda stores: _simplify(stores, _rewriter(is_cuda(stores[0].buffer.device))))
        for s in program.steps
    )
    return replace(program, steps=steps)


def simple_value(store: Store) -> Node:
    """Returns the store's value after all rules are applied."""
    return _simplify([store], _rewriter(is_cuda(store.buffer.device)))[0].value


def _simplify(stores: Sequence[Store], rewriter: Rewriter) -> tuple[Store, ...]:
    values = rewriter.roots([s.value for s in stores])
    return tuple(replace(s, value=v) for s, v in zip(stores, values, strict=True))
