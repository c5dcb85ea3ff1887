"""Answers PyTorch's C++ code about sizes: the objects behind a torch.SymInt, SymBool or SymFloat.

Arithmetic stays in the algebra of expr.py.  A comparison is decided when PyTorch asks for its truth
(`guard_bool`), and then may become a condition.  Where PyTorch accepts either answer (`guard_or_false` and
the like), the code gives the answer that needs no condition.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.symbolic.atoms import atoms_of, is_given_stride, unbacked_in, with_atoms
from frameloom.ir.symbolic.compare import OPEN_END, equal, fits
from frameloom.ir.symbolic.expr import (
    Apply,
    Atom,
    Int,
    Size,
    hint_of,
    largest,
    shape_env_of,
    smallest,
)

if TYPE_CHECKING:
    from frameloom.ir.symbolic.shape_env import ShapeEnv

ARITHMETIC: dict[str, Callable[..., Int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "int_floordiv": operator.floordiv,
    "mod": operator.mod, "neg": operator.neg, "pos": operator.pos, "abs": abs, "sym_max": largest, "sym_min": smallest,
    "pow": operator.pow, "pow_by_natural": operator.pow,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
REAL: dict[str, Callable[..., float]] = {
    "truediv": operator.truediv, "float_truediv": operator.truediv, "int_truediv": operator.truediv, "sym_float": float,
    "sym_sqrt": math.sqrt, "float_pow": operator.pow,
}  # fmt: skip


EXPECTED: dict[Any, Callable[[Int, Int], bool]] = {
    operator.eq: equal, operator.le: fits, operator.lt: lambda a, b: fits(a + 1, b),
    operator.ge: lambda a, b: fits(b, a), operator.gt: lambda a, b: fits(b + 1, a),
}  # fmt: skip


class NumberNode:
    """What every object behind a torch.SymInt, SymBool or SymFloat answers."""

    def is_int(self) -> bool:
        return False

    is_float = is_bool = is_nested_int = is_constant = is_int

    def is_symbolic(self) -> bool:
        return True

    has_hint = is_symbolic

    def _nothing(self) -> Any:
        return None

    maybe_as_int = maybe_as_float = maybe_as_bool = constant_int = constant_bool = nested_int = (
        _nothing
    )

    def clone(self) -> NumberNode:
        return self


class Node(NumberNode):
    """The answers that all three kinds of sizes share."""

    shape_env: ShapeEnv

    def str(self) -> str:
        return "a size"

    _graph_repr = __repr__ = __str__ = str

    def wrap_int(self, number: int) -> SizeNode:
        return SizeNode(self.shape_env, number)

    def wrap_bool(self, value: bool) -> TruthNode:
        return TruthNode(self.shape_env, bool, (value,))

    def wrap_float(self, number: float) -> FloatNode:
        return FloatNode(self.shape_env, number)

    def __getattr__(self, name: Any) -> Any:
        """Returns the method for an operator: of sizes it stays in the algebra, except where the result is
        a float."""
        if (compared := COMPARISONS.get(name)) is not None:
            return lambda other: TruthNode(self.shape_env, compared, (self.size, other.size))
        fn = ARITHMETIC.get(name)
        if fn is not None and self.is_int():
            return lambda *others: SizeNode(
                self.shape_env, fn(self.size, *(o.size for o in others))
            )
        real = fn or REAL.get(name)
        if real is None:
            raise AttributeError(name)
        return lambda *others: FloatNode(
            self.shape_env,
            float(real(*(n.size if n.is_float() else int(n.size) for n in (self, *others)))),
        )


class SizeNode(Node):
    """The node of `size`, a Size or an int."""

    def __init__(self, shape_env: ShapeEnv, size: Int) -> None:
        self.shape_env = shape_env
        self._size = size

    @property
    def size(self) -> Int:
        return self.shape_env.resolved(self._size)

    def is_int(self) -> bool:
        return True

    def str(self) -> str:
        return repr(self.size)

    _graph_repr = __repr__ = __str__ = str

    def maybe_as_int(self) -> int | None:
        size = self.size
        return None if isinstance(size, Size) else size

    def is_symbolic(self) -> bool:
        return isinstance(self.size, Size)

    def guard_int(self, file: Any, line: Any) -> int:
        return int(self.size)

    def int_(self) -> int:
        return int(self.size)

    def guard_bool(self, file: Any, line: Any) -> bool:
        return bool(self.size)

    def sym_int(self) -> SizeNode:
        return self

    def is_contiguous(self, sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
        return follows(*known(sizes, strides), range(len(sizes) - 1, -1, -1))

    def is_channels_last_contiguous_2d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
        return follows(*known(sizes, strides), (1, *range(len(sizes) - 1, 1, -1), 0))

    is_channels_last_contiguous_3d = is_channels_last_contiguous_2d

    def is_channels_last_strides_2d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
        order = (1, *range(len(sizes) - 1, 1, -1), 0)
        return has_ascending_strides(*known(sizes, strides), order)

    is_channels_last_strides_3d = is_channels_last_strides_2d

    def is_non_overlapping_and_dense(self, sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
        own_sizes, own_strides = known(sizes, strides)
        order = sorted(
            range(len(sizes)), key=lambda d: (hint_of(own_strides[d]), hint_of(own_sizes[d]))
        )
        return follows(own_sizes, own_strides, order)

    is_non_overlapping_and_dense_indicator = is_non_overlapping_and_dense


class FloatNode(Node):
    """A float computed from sizes, which were specialized for it."""

    def __init__(self, shape_env: ShapeEnv, value: float) -> None:
        self.shape_env = shape_env
        self.size = value

    def is_float(self) -> bool:
        return True

    def guard_float(self, file: Any, line: Any) -> float:
        return self.size

    def maybe_as_float(self) -> float:
        return self.size


class TruthNode(Node):
    """The truth of `fn(*operands)`; operands are sizes that are compared, or other truths."""

    def __init__(
        self, shape_env: ShapeEnv, fn: Callable[..., bool], operands: tuple[Any, ...]
    ) -> None:
        self.shape_env = shape_env
        self.fn = fn
        self.operands = operands

    def is_bool(self) -> bool:
        return True

    def truth(self) -> bool:
        """The truth of the condition.  PyTorch asks whether a size is 1 only to choose layouts, so that is a
        deferred guard; view_rules.py handles the views that drop such dimensions."""
        known = self.known()
        if known is not None:
            return known
        if self.fn is operator.and_:
            return all(o.truth() for o in self.operands)
        if self.fn is operator.or_:
            return any(o.truth() for o in self.operands)
        if self.fn is operator.not_:
            return not self.operands[0].truth()
        a, b = self.operands
        if self.fn in (operator.eq, operator.ne) and type(b) is int and b == 1:
            return self.shape_env.is_one_deferred(a) is (self.fn is operator.eq)
        if self.fn in (operator.eq, operator.ne) and not self.is_of_floats():
            return self.shape_env.differ_deferred(a, b) is (self.fn is operator.ne)
        return bool(self.fn(a, b))

    def known(self) -> bool | None:
        """The truth of the condition if the assumptions so far decide it, else None."""
        if self.fn is bool:
            return bool(self.operands[0])
        if self.fn in (operator.and_, operator.or_, operator.not_):
            parts = [o.known() for o in self.operands]
            if self.fn is operator.not_:
                return None if parts[0] is None else not parts[0]
            decides = self.fn is operator.or_
            if any(part is decides for part in parts):
                return decides
            return None if None in parts else not decides
        a, b = self.operands
        if not isinstance(a, Size) and not isinstance(b, Size):
            return bool(self.fn(a, b))
        if isinstance(a, float) or isinstance(b, float):
            return None
        shape_env, difference = self.shape_env, a - b
        if self.fn in (operator.eq, operator.ne):
            if shape_env.surely_zero(difference):
                return self.fn is operator.eq
            return self.fn is operator.ne if shape_env.surely_not_zero(difference) else None
        if self.fn is operator.le and type(b) is int and b > OPEN_END:
            return True  # so `x[:]` needs no slice
        low, high = shape_env.range_of(shape_env.resolved(difference))
        at_low, at_high = self.fn(low, 0), self.fn(high, 0)
        return at_low if at_low is at_high else None

    def statically_known_true(self, file: Any, line: Any) -> bool:
        return self.known() is True

    def hint(self) -> bool:
        """The truth of the condition in the captured call."""
        if self.fn in (operator.and_, operator.or_, operator.not_):
            return bool(self.fn(*(o.hint() for o in self.operands)))
        return bool(self.fn(*map(hint_of, self.operands)))

    def guard_bool(self, file: Any, line: Any) -> bool:
        return self.truth()

    def bool_(self) -> bool:
        return self.truth()

    def expect_true(self, file: Any, line: Any) -> bool:
        """The truth of a condition without which PyTorch raises an error; for unbacked sizes it is assumed
        and checked."""
        known = self.known()
        if known is None and self.fn is operator.and_:
            return all(o.expect_true(file, line) for o in self.operands)
        if known is None and self.fn in EXPECTED:
            a, b = self.operands
            if unbacked_in(a - b):
                return EXPECTED[self.fn](a, b)
        return self.truth() if known is None else known

    guard_size_oblivious = expect_size = guard_bool

    def guard_or_false(self, file: Any, line: Any) -> bool:
        if self._needs_no_condition():
            return self.truth()
        if self.hint() and not self._is_unbacked():
            return self.truth()
        self._assume_distinct()
        return False

    def guard_or_true(self, file: Any, line: Any) -> bool:
        if self._needs_no_condition() or not (self.hint() or self._is_unbacked()):
            return self.truth()
        self._assume_distinct()
        return True

    def _assume_distinct(self) -> None:
        """Assumes that operands that differ in the captured call always differ.  The assumption matters only
        if the program can see a tensor in another shape."""
        if self.fn in (operator.eq, operator.ne, operator.lt) and not self.is_of_floats():
            a, b = self.operands
            if hint_of(a) != hint_of(b):
                self.shape_env.assume_distinct_deferred(a - b)

    def is_of_floats(self) -> bool:
        return any(isinstance(o, float) for o in self.operands)

    def _needs_no_condition(self) -> bool:
        """Whether `truth` adds no condition at once: the answer is known, or the question is whether a size
        is 1 (only a layout may depend on that)."""
        a, b = self.operands if len(self.operands) == 2 else (None, None)
        of_one = self.fn in (operator.eq, operator.ne) and type(b) is int and b == 1
        return self.known() is not None or (of_one and isinstance(a, Size))

    def _is_unbacked(self) -> bool:
        return any(
            o._is_unbacked() if isinstance(o, TruthNode) else bool(unbacked_in(o))
            for o in self.operands
        )

    def and_(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.shape_env, operator.and_, (self, other))

    def or_(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.shape_env, operator.or_, (self, other))

    def not_(self) -> TruthNode:
        return TruthNode(self.shape_env, operator.not_, (self,))

    sym_and, sym_or, sym_not = and_, or_, not_


def size_of(symbol: torch.SymInt) -> Int:
    """Returns the size behind a value that PyTorch's C++ code returned."""
    if isinstance(symbol, Size):
        return symbol.shape_env.resolved(symbol)
    node: Any = symbol.node
    if isinstance(node, SizeNode):
        return node.size
    known_int = node.maybe_as_int()
    return int(symbol) if known_int is None else known_int


def known(sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[list[Int], list[Int]]:
    """Returns sizes and strides that come from C++ as nodes, some of which are constants."""

    def numbers(nodes: Sequence[Any]) -> list[Int]:
        return [n.size if isinstance(n, SizeNode) else n.maybe_as_int() for n in nodes]

    return numbers(sizes), numbers(strides)


def follows(sizes: Sequence[Int], strides: Sequence[Int], order: Sequence[int]) -> bool:
    """Whether the dimensions are contiguous, without gaps, in this order from the innermost on."""
    expected: Int = 1
    if any(not isinstance(n, Size) and n == 0 for n in sizes):
        return True
    strides = [_where_not_empty(s, sizes) for s in strides]
    for d in order:
        if not isinstance(sizes[d], Size) and sizes[d] == 1:
            continue
        if strides[d] is not expected and not stride_is(sizes[d], strides[d], expected):
            return False
        expected = expected * sizes[d]
    return True


def _where_not_empty(stride: Int, sizes: Sequence[Int]) -> Int:
    """Simplifies a stride for a tensor of these sizes that is not empty: there, `max(n, 1)` is `n`."""
    shape_env = stride.shape_env if isinstance(stride, Size) else None
    if shape_env is None or not shape_env.has_unbacked:
        return stride

    def plain(atom: Atom) -> Int:
        if isinstance(atom, Apply) and atom.op == "max" and 1 in map(_int_or_0, atom.args):
            rest = next((a for a in atom.args if isinstance(a, Size)), None)
            if any(rest is n for n in sizes):
                return rest
        return shape_env.make({(atom,): 1})

    return with_atoms(stride, plain)


def _int_or_0(n: Int) -> int:
    return 0 if isinstance(n, Size) else n


def stride_is(size: Int, stride: Int, expected: Int) -> bool:
    """Whether a dimension's stride is the expected one; the stride of a dimension of size 1 does not
    matter."""
    shape_env = shape_env_of(stride, expected)
    if shape_env is None:
        return bool(stride == expected) or (
            isinstance(size, Size) and size.shape_env.is_one_deferred(size)
        )
    same_stride = shape_env.surely_zero(largest(stride, 1) - largest(expected, 1))
    if same_stride and not _may_repeat(stride):
        return True
    if shape_env.surely_not_zero(stride - expected):
        return shape_env.is_one_deferred(size)
    if hint_of(stride) != hint_of(expected) and shape_env.differ_deferred(stride, expected):
        return shape_env.is_one_deferred(size)
    return bool(stride == expected) or shape_env.is_one_deferred(size)


def _may_repeat(stride: Int) -> bool:
    """Whether the stride may be 0 in a tensor with elements.  Symbolic strides of input tensors may; a stride
    that is computed from sizes is 0 only if the tensor has no elements."""
    if not isinstance(stride, Size):
        return bool(stride == 0)
    given = any(map(is_given_stride, atoms_of(stride)))
    return given and bool(stride.shape_env.range_of(stride)[0] <= 0)


def has_ascending_strides(
    sizes: Sequence[Int], strides: Sequence[Int], order: Sequence[int]
) -> bool:
    """Whether strides grow in this order.  Source: `is_channels_last_strides_2d_s4` of c10."""
    least: Int = 0
    if isinstance(strides[1], int) and strides[1] == 0:
        return False
    for d in order:
        if sizes[d] == 0 or is_less(strides[d], least):
            return False
        if d == 0 and not _differ(least, strides[1]):
            return False
        least = strides[d] * largest(sizes[d], 1)
    return True


def is_less(a: Int, b: Int) -> bool:
    """Whether `a < b`, for strides and sizes where only layouts depend on the answer."""
    shape_env = shape_env_of(a, b)
    return bool(a < b) if shape_env is None else shape_env.is_less_deferred(a, b)


def _differ(a: Int, b: Int) -> bool:
    shape_env = shape_env_of(a, b)
    return bool(a != b) if shape_env is None else shape_env.differ_deferred(a, b)
