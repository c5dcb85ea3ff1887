"""Rewrite rules: nodes that match, of every dtype, over special values; the same bits before and after.

What stands for any node is a load that takes all special values, all combinations of them where there are several; or, where rules look at what it is,
a constant or a conversion.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, Reduce, axis, cast, const, load, unary, where
from frameloom.ir.ops import BINARY, COMPARES, FLOAT_ONLY, PREDICATES, UNARY, Op
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.rewrite import Pattern, Rule, match
from frameloom.ir.rules import ALL_RULES, GPU_RULES
from frameloom.ir.verify import _check_node, _Fault
from tests.exhaustive.spaces import SKIPPED, Space

MANY = 24  # special values of a type, some more than once


def special(dtype: DType) -> list[Any]:
    if dtype is DType.BOOL:
        return [False, True]
    if dtype.is_int:
        info = torch.iinfo(dtype.to_torch())
        values = [0, 1, -1, 2, 3, -7, 8, info.min, info.max, info.min + 1, info.max - 1]
        return [v for v in values if info.min <= v <= info.max]
    limits = torch.finfo(dtype.to_torch())
    tiny = limits.smallest_normal * limits.eps  # the least number above 0
    plain = [0.0, 1.0, 0.5, 2.5, 3.0, 7.0, 1.0 + limits.eps, limits.max, limits.smallest_normal, tiny]  # fmt: skip
    return [*plain, *(-v for v in plain), math.inf, -math.inf, math.nan]


def _grid(dtype: DType, stride: int) -> torch.Tensor:
    values = special(dtype)
    count = 2 if dtype is DType.BOOL else MANY
    place = torch.arange(_SIZE) // stride % count % len(values)
    return torch.tensor(values, dtype=dtype.to_torch())[place]


# p and q are conditions, the others any values.
_STRIDES = {"x": 1, "y": MANY, "p": MANY**2, "q": 2 * MANY**2}
_SIZE = 4 * MANY**2
I = Axis(f"i0x{_SIZE}", _SIZE)  # noqa: E741
MEMORY = {
    Buffer(f"{name}_{d.text}", d, (_SIZE,), (1,), Kind.INPUT): _grid(d, stride)
    for name, stride in _STRIDES.items() for d in DType
}  # fmt: skip


def loaded(name: str, dtype: DType) -> Node:
    buffer = next(b for b in MEMORY if b.name == f"{name}_{dtype.text}")
    return load(buffer, axis(I))


# --- nodes that match a pattern

Pick = Callable[[list[Any]], list[Any]]  # which of several to go on with: all, or one


class Matching:
    """Nodes like a pattern."""

    def __init__(self, pick: Pick) -> None:
        self._pick = pick

    def of_rule(self, rule: Rule) -> Iterator[Node]:
        for dtype in self._pick([d for d in DType if rule.dtypes(d)]):
            yield from self._nodes(rule.before, dtype, {}, None)

    def _nodes(
        self, pattern: Pattern, dtype: DType, names: dict[str, Node], around: Op | None
    ) -> Iterator[Node]:
        if pattern.name in names:
            if names[pattern.name].dtype is dtype:
                yield names[pattern.name]
        elif pattern.op is None:
            assert pattern.name is not None
            yield from self._pick(anything(pattern.name, dtype, around))
        elif pattern.op is Op.CONST:
            for value in self._pick(constants(pattern, dtype, around)):
                yield const(value, dtype)
        else:
            yield from self._operations(pattern, dtype, names)

    def _operations(self, pattern: Pattern, dtype: DType, names: dict[str, Node]) -> Iterator[Node]:
        op = pattern.op
        assert op is not None
        arguments: list[Any] = [None]
        choices = [(dtype,) * len(pattern.srcs)]
        if op is Op.REDUCE:
            axes = [(Axis("r0x1", 1),), (Axis("r0x3", 3),), (Axis("r0x2", 2), Axis("r1x3", 3))]
            arguments = [
                Reduce(kind, a) for kind in ("max", "min", "any", "all", "sum") for a in axes
            ]
        elif op is Op.CAST:
            choices = [(d,) for d in DType]
        elif op is Op.WHERE:
            choices = [(DType.BOOL, dtype, dtype)]
        elif op in COMPARES or op in PREDICATES:
            choices = [(d,) * len(pattern.srcs) for d in DType] if dtype is DType.BOOL else []
        for given in self._pick(choices):
            for srcs in self._combinations(pattern.srcs, given, names, op):
                for arg in self._pick(arguments):
                    node = Node(op, dtype, srcs, arg)
                    if legal(node):
                        yield node

    def _combinations(
        self, patterns: Any, dtypes: Any, names: Any, op: Op
    ) -> Iterator[tuple[Node, ...]]:
        if not patterns:
            yield ()
            return
        for first in self._nodes(patterns[0], dtypes[0], names, op):
            known = {**names, patterns[0].name: first} if patterns[0].name else names
            for rest in self._combinations(patterns[1:], dtypes[1:], known, op):
                yield (first, *rest)


def constants(pattern: Pattern, dtype: DType, around: Op | None) -> list[Any]:
    values = special(dtype) if pattern.value is None else [pattern.value]
    if around is Op.WHERE:
        values = values[::3]
    if pattern.value is None and dtype in (DType.F32, DType.F64):
        values = [*values, 2.0**120, 2.0**-120, 2.0**121, 2.0**-126, 2.0**-149, 1 / 3]
    return [v for v in values if dtype.is_float or (math.isfinite(v) and v == int(v))]


def anything(name: str, dtype: DType, around: Op | None) -> list[Node]:
    found = [loaded(name, dtype)]
    if around is not Op.CAST:
        return [*found, const(special(dtype)[1], dtype)]
    for other in DType:  # conversions look at where a value comes from
        narrow = cast(dtype, loaded(name, other))
        found.append(narrow)
        if dtype in (DType.F32, DType.F64) and other.is_float:
            second = cast(dtype, loaded("y", other))
            limits = (0.0, -0.0, 0.1, 65504.0, 3.0e38, math.inf, math.nan, 2.0**-24, 2.0**-140)
            found += [Node(Op.MAX, dtype, (narrow, const(v, dtype))) for v in limits]
            found += [
                Node(Op.MIN, dtype, (narrow, second)),
                Node(Op.ADD, dtype, (narrow, second)),
                where(loaded("p", DType.BOOL), narrow, unary(Op.NEG, second)),
                unary(Op.ABS, narrow),
                Node(Op.REDUCE, dtype, (narrow,), Reduce("max", (Axis("r0x3", 3),))),
            ]
    return found


def legal(node: Node) -> bool:
    """By the rules of the IR, and of a meaning that PyTorch gives it."""
    if node.op in UNARY | BINARY and (
        node.srcs[0].dtype is DType.BOOL and node.op not in (Op.NOT, Op.AND, Op.OR, Op.XOR)
    ):
        return node.op in COMPARES
    if (
        not node.srcs[0].dtype.is_float
        and node.op in FLOAT_ONLY | {Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND} | PREDICATES
    ):
        return False
    if node.op in (Op.FLOORDIV, Op.TRUNCDIV, Op.MOD, Op.FMOD) and node.dtype.is_int:
        return node.srcs[1].arg not in (0, -1)
    if node.op in (Op.SHL, Op.SHR) and not 0 <= node.srcs[1].arg < node.dtype.bits:
        return False
    if node.op is Op.POW and node.dtype.is_int and node.srcs[1].arg < 0:
        return False
    try:
        _check_node(node)
    except _Fault:
        return False
    return True


# --- before and after


def differs(before: Node, after: Node) -> str | None:
    if after.dtype is not before.dtype:
        return f"{after.dtype} for {before.dtype}"
    want, got = interp.compute(before, MEMORY, (I,)), interp.compute(after, MEMORY, (I,))
    same = got == want
    if before.dtype.is_float:
        same = (same & (got.signbit() == want.signbit())) | (got.isnan() & want.isnan())
    if bool(same.all()):
        return None
    at = int((~same).int().argmax())
    return f"{before!r} is {want[at].item()}, {after!r} {got[at].item()}"


def rewritten(rule: Rule, node: Node) -> str | None:
    found: dict[str, Node] = {}
    if not match(rule.before, node, found):
        return SKIPPED
    after = rule.after(**found)
    return SKIPPED if after is None else differs(node, after)


class OfRule(Space):
    """All that one rule matches, or some of it."""

    def all(self) -> Iterator[tuple[Any, ...]]:
        rule = self.choices[0][0]
        return ((rule, node) for node in Matching(lambda values: values).of_rule(rule))

    def some(self, count: int, seed: int = 0) -> Iterator[tuple[Any, ...]]:
        rule, rng = self.choices[0][0], random.Random(f"{self.name} {seed}")
        matching = Matching(lambda values: [rng.choice(values)] if values else [])
        for _ in range(count):
            for node in matching.of_rule(rule):
                yield rule, node


def _name(pattern: Pattern) -> str:
    if pattern.op is None:
        return pattern.name or "?"
    inside = ", ".join(map(_name, pattern.srcs))
    return pattern.op.value + (f"({inside})" if inside else f" {pattern.value}" if pattern.value is not None else "")  # fmt: skip


RULES = (*ALL_RULES, *(r for r in GPU_RULES if r not in ALL_RULES))  # these leave more alone
SPACES = tuple(
    OfRule(f"rule {k}: {_name(rule.before)}", rewritten, ([rule],)) for k, rule in enumerate(RULES)
)
