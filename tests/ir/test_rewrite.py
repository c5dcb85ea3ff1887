"""Every rule, on examples made from its own pattern: the same bits before and after."""

import itertools
import math

import pytest
import torch

from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, Reduce, axis, cast, const, load
from frameloom.ir.ops import BINARY, COMPARES, FLOAT_ONLY, PREDICATES, UNARY, Op
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.rewrite import Pattern, Rewriter, match
from frameloom.ir.rules import ALL_RULES, GPU_RULES
from frameloom.ir.rules.casts import holds_all
from frameloom.ir.verify import _check_node, _Fault

I = Axis("i0x64", 64)  # noqa: E741
TYPES = [DType.BOOL, DType.U8, DType.I32, DType.I64, DType.F32, DType.F64]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-42, 3e38, 2.5, -7.0]
NUMBERS = [0, 1, 2, -1, 8, 0.0, -0.0, 0.3, 0.125, -4.0, math.inf, math.nan]


def data(dtype):
    t = torch.randn(64, generator=torch.Generator().manual_seed(dtype.bits)) * 20
    if dtype.is_float:
        t[: len(SPECIAL)] = torch.tensor(SPECIAL)
        return t.to(dtype.to_torch())
    if dtype is DType.BOOL:
        return t > 0
    info = torch.iinfo(dtype.to_torch())
    t = t.long().abs() if dtype.kind == "u" else t.long()
    t[:3] = torch.tensor([info.min, info.max, 0])
    return t.to(dtype.to_torch())


MEMORY = {
    Buffer(f"{n}_{d.text}", d, (64,), (1,), Kind.INPUT): data(d).roll(3 * k)
    for k, n in enumerate("xypq") for d in DType
}  # fmt: skip


def examples(pattern: Pattern, dtype: DType, names: dict):
    """Nodes of a dtype that look like the pattern."""
    if pattern.name in names:
        if names[pattern.name].dtype is dtype:
            yield names[pattern.name]
        return
    if pattern.op is None:
        buffer = next(b for b in MEMORY if b.name == f"{pattern.name}_{dtype.text}")
        yield load(buffer, axis(I))
    elif pattern.op is Op.CONST:
        for value in NUMBERS if pattern.value is None else [pattern.value]:
            if dtype.is_float or (
                math.isfinite(value) and value == int(value) and (value >= 0 or dtype.kind == "i")
            ):
                yield const(value, dtype)
    else:
        yield from operations(pattern, dtype, names)


def operations(pattern, dtype, names):
    op = pattern.op
    if op is Op.REDUCE:
        for kind in ("max", "min", "any", "all"):
            for (src,) in combinations(pattern.srcs, (dtype,), names):
                node = Node(op, dtype, (src,), Reduce(kind, (Axis("r0x3", 3),)))
                if legal(node):
                    yield node
        return
    if op is Op.CAST:
        choices = [(d,) for d in DType]
    elif op is Op.WHERE:
        choices = [(DType.BOOL, dtype, dtype)]
    elif op in COMPARES or op in PREDICATES:
        choices = [(d,) * len(pattern.srcs) for d in TYPES] if dtype is DType.BOOL else []
    else:
        choices = [(dtype,) * len(pattern.srcs)]
    for given in choices:
        for srcs in combinations(pattern.srcs, given, names):
            node = Node(op, dtype, srcs)
            if legal(node):
                yield node


def combinations(patterns, dtypes, names):
    if not patterns:
        yield ()
        return
    for first in itertools.islice(examples(patterns[0], dtypes[0], names), 40):
        known = {**names, patterns[0].name: first} if patterns[0].name else names
        for rest in combinations(patterns[1:], dtypes[1:], known):
            yield (first, *rest)


def legal(node):
    if node.op in UNARY | BINARY and (
        node.srcs[0].dtype is DType.BOOL and node.op not in (Op.NOT, Op.AND, Op.OR, Op.XOR)
    ):
        return node.op in COMPARES
    if (
        not node.srcs[0].dtype.is_float
        and node.op in FLOAT_ONLY | {Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND} | PREDICATES
    ):
        return False
    if (
        node.op in (Op.FLOORDIV, Op.TRUNCDIV, Op.MOD, Op.FMOD)
        and node.dtype.is_int
        and node.srcs[1].arg in (0, -1)
    ):
        return False
    if node.op in (Op.SHL, Op.SHR) and not 0 <= node.srcs[1].arg < node.dtype.bits:
        return False
    if node.op is Op.POW and node.dtype.is_int and node.srcs[1].arg < 0:
        return False
    try:
        _check_node(node)
    except _Fault:
        return False
    return True


@pytest.mark.parametrize("number", range(len(ALL_RULES)))
def test_rule_is_exact(number):
    rule = ALL_RULES[number]
    applied = 0
    for dtype in DType:
        if not rule.dtypes(dtype):
            continue
        for node in itertools.islice(examples(rule.before, dtype, {}), 300):
            found: dict = {}
            if not match(rule.before, node, found):
                continue
            after = rule.after(**found)
            if after is None:
                continue
            applied += 1
            assert after.dtype is node.dtype
            expected, got = interp.compute(node, MEMORY, (I,)), interp.compute(after, MEMORY, (I,))
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
            if dtype.is_float:
                numbers = ~expected.isnan()
                assert torch.equal(got.signbit()[numbers], expected.signbit()[numbers]), (
                    node,
                    after,
                )
    assert applied, rule.before


def test_rounding_is_kept():
    x = load(Buffer("x", DType.F32, (4,), (1,), Kind.INPUT), axis(Axis("i0x4", 4)))
    rewriter = Rewriter(ALL_RULES)
    rounded = cast(DType.F32, cast(DType.BF16, x))
    assert rewriter.roots([rounded]) == [rounded]
    half = load(Buffer("h", DType.BF16, (4,), (1,), Kind.INPUT), axis(Axis("i0x4", 4)))
    assert rewriter.roots([cast(DType.BF16, cast(DType.F32, half))]) == [half]
    assert not holds_all(DType.BF16, DType.F16) and not holds_all(DType.F32, DType.I32)


def test_choosing_among_rounded_values_rounds_nothing():
    at = axis(Axis("i0x4", 4))
    a, b = (cast(DType.F32, load(Buffer(n, DType.BF16, (4,), (1,), Kind.INPUT), at)) for n in "ab")
    rewriter = Rewriter(ALL_RULES)
    for value, exact in (
        (Node(Op.MAX, DType.F32, (a, const(0.5, DType.F32))), True),
        (Node(Op.MIN, DType.F32, (a, Node(Op.NEG, DType.F32, (b,)))), True),
        (Node(Op.MAX, DType.F32, (a, const(0.1, DType.F32))), False),
        (Node(Op.ADD, DType.F32, (a, b)), False),
    ):
        rounded = cast(DType.F32, cast(DType.BF16, value))
        assert rewriter.roots([rounded]) == [value if exact else rounded]


def test_fuel_stops_rewriting():
    x = load(Buffer("x", DType.F32, (4,), (1,), Kind.INPUT), axis(Axis("i0x4", 4)))
    negated = x
    for _ in range(4):
        negated = Node(Op.NEG, DType.F32, (negated,))
    assert Rewriter(ALL_RULES).roots([negated]) == [x]
    assert Rewriter(ALL_RULES, fuel=0).roots([negated]) == [negated]
    assert Rewriter(ALL_RULES, fuel=1).roots([negated])[0] is negated.srcs[0].srcs[0]


@pytest.mark.parametrize(
    ("node", "folds"),
    [
        (cast(DType.I32, const(math.inf, DType.F32)), False),
        (cast(DType.I64, const(math.nan, DType.F32)), False),
        (cast(DType.I32, const(3e10, DType.F64)), False),
        (cast(DType.U8, const(-1.5, DType.F32)), False),
        (cast(DType.I32, const(2.5, DType.F32)), True),
        (Node(Op.EXP, DType.F32, (const(1.5, DType.F32),)), False),
        (Node(Op.ADD, DType.F32, (const(1.5, DType.F32), const(2.5, DType.F32))), True),
    ],
)
def test_kernels_for_a_gpu_fold_what_all_devices_compute_alike(node, folds):
    """A GPU gives the largest int for infinity, a CPU the smallest, and functions that are approximated are so in other ways."""
    assert (Rewriter(GPU_RULES).roots([node])[0].op is Op.CONST) is folds
    assert Rewriter(ALL_RULES).roots([node])[0].op is Op.CONST
