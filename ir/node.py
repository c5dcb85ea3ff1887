"""The one node class of the loop IR: immutable, interned (equal means identical).

**Reading a node.**  A node is the value of one element as a function of the axes it mentions: `AXIS` leaves
are loop positions, `LOAD` reads a buffer at a flat element offset (itself a node, dtype I64), `REDUCE` binds
its own axes and reduces its source over them.  A kernel (program.py) is a set of stores of such nodes; loops
are chosen later (codegen/schedule/nest.py).  Fusion is substitution: a LOAD of a buffer becomes the node that
was stored there, its axes replaced by the consumer's positions.

**Meaning.**  The same as eager PyTorch on the CPU, element by element:
- Integers wrap (two's complement).  Index arithmetic (I64 from AXIS, CONST) never overflows.
- Floats follow IEEE 754 with NaN, infinities, signed zeros and denormals kept.  MIN/MAX return NaN if either
  is NaN.  Comparisons with NaN are false, except NE.  No contraction: MUL then ADD rounds twice.
- **Rounding.**  F16/BF16 only appear at LOAD, CAST, CONST and Store: there is no arithmetic on them.
  Lowering casts to F32, computes, and casts back after every op after which eager rounds; therefore
  `CAST(F32, CAST(BF16, x))` is not `x`.
- CAST float->int truncates toward zero (out of range: as C on x86-64); anything->BOOL is `!= 0` (NaN is
  true).
- WHERE evaluates both sides; a side that must not be read is a masked LOAD.
- RANDOM is the element at `position` of the random tensor that eager draws on a GPU with this seed and offset
  of the generator (philox.py): in F32 a number in (0, 1], in I32 its 32 bits.  It is a function of its
  sources: a second evaluation gives the same value.
- REDUCE starts from the identity of its kind (reductions.py), in node.dtype.  The order of a float sum is
  free; its accuracy is at least that of pairwise blocks of 128 or so.  max/min return NaN if any element is
  NaN.
- Extents are at least 1 inside REDUCE and Store: empty loops are resolved by lowering.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

from frameloom.ir.dtype import DType
from frameloom.ir.ops import COMPARES, PREDICATES, Op
from frameloom.ir.reductions import REDUCTIONS, Reduction, combining_op
from frameloom.ir.symbolic.expr import Int, Size


class Axis(NamedTuple):
    """A loop variable 0 <= name < extent.  Names are unique within a program.  (A tuple: C code hashes and
    compares it.)"""

    name: str
    extent: int

    def __repr__(self) -> str:
        return f"{self.name}:{self.extent}"


@dataclass(frozen=True, slots=True)
class Reduce:
    """arg of Op.REDUCE: the kind of the reduction and the axes that it binds, outermost first."""

    kind: str
    axes: tuple[Axis, ...]

    @property
    def row(self) -> Reduction:
        return REDUCTIONS[self.kind]

    def op(self, dtype: DType) -> Op:
        """The op that combines two values of `dtype`."""
        return combining_op(self.kind, dtype)

    def __repr__(self) -> str:
        return f"{self.kind}[{', '.join(map(repr, self.axes))}]"


class Node:
    """op, dtype of the result, sources, frozen argument.  The functions below build, check and intern
    nodes."""

    __slots__ = ("__weakref__", "arg", "bound", "dtype", "free", "op", "srcs")
    op: Op
    dtype: DType
    srcs: tuple[Node, ...]
    arg: Any
    free: frozenset[Axis]  # axes the value depends on
    bound: frozenset[Axis]  # axes bound by the REDUCEs inside

    _interned: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()

    def __new__(cls, op: Op, dtype: DType, srcs: tuple[Node, ...] = (), arg: Any = None) -> Node:
        key = (op, dtype, srcs, None if arg is None else _arg_key(arg))
        known = _known(key)
        interned: Node | None = None if known is None else known()
        if interned is not None:
            return interned
        node: Node = _new(cls)
        _set_op(node, op)
        _set_dtype(node, dtype)
        _set_srcs(node, srcs)
        _set_arg(node, arg)
        free, bound = _axes_of(op, srcs, arg)
        _set_free(node, free)
        _set_bound(node, bound)
        cls._interned[key] = node
        return node

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("Node is immutable")

    def __reduce__(self) -> Any:
        return (Node, (self.op, self.dtype, self.srcs, self.arg))

    def __repr__(self) -> str:
        inside = [repr(s) if not s.srcs else "…" for s in self.srcs]
        if self.arg is not None:
            inside.insert(
                0, repr(self.arg) if not hasattr(self.arg, "name") else str(self.arg.name)
            )
        return f"{self.op.value}.{self.dtype.text}({', '.join(inside)})"


# A compilation makes hundreds of thousands of nodes.  For speed, fields are set without `__setattr__`, and
# nodes are looked up without WeakValueDictionary.get.
_new = object.__new__
_known: Any = vars(Node._interned)["data"].get
_set_op, _set_dtype, _set_srcs, _set_arg, _set_free, _set_bound = (
    Node.__dict__[name].__set__ for name in ("op", "dtype", "srcs", "arg", "free", "bound")
)
_NO_AXES: frozenset[Axis] = frozenset()


def _axes_of(op: Op, srcs: tuple[Node, ...], arg: Any) -> tuple[frozenset[Axis], frozenset[Axis]]:
    if op is Op.AXIS:
        return frozenset((arg,)), _NO_AXES
    free = bound = _NO_AXES
    for s in srcs:
        # Usually one source has all the axes: its set is shared instead of copied.
        if not s.free <= free:
            free = s.free if free <= s.free else free | s.free
        if not s.bound <= bound:
            bound = s.bound if bound <= s.bound else bound | s.bound
    if op is Op.REDUCE:
        axes = frozenset(arg.axes)
        free, bound = free - axes, bound | axes
    return free, bound


def _arg_key(arg: Any) -> Any:
    # In Python 1 == 1.0 == True and 0.0 == -0.0, and NaN differs from itself; as constants they are all
    # different.
    if type(arg) is float:
        return (float, arg.hex())
    # Buffers are equal by name, within one program; nodes are shared between programs.
    return (type(arg), getattr(arg, "identity", arg))


def const(value: bool | int | float, dtype: DType) -> Node:
    """Returns a constant: `value` converted to the dtype's Python type; ints wrap."""
    if isinstance(value, Size):
        return cast(dtype, index(value))
    if dtype.kind == "b":
        value = bool(value)
    elif dtype.is_int:
        value = dtype.wrapped(int(value))
    else:
        value = float(value)
    return Node(Op.CONST, dtype, (), value)


def index(value: Int) -> Node:
    """Returns an index constant."""
    return Node(Op.CONST, DType.I64, (), value) if isinstance(value, Size) else _index(value)


@functools.lru_cache(1024)
def _index(value: int) -> Node:
    return Node(Op.CONST, DType.I64, (), int(value))


def axis(a: Axis) -> Node:
    return Node(Op.AXIS, DType.I64, (), a)


def load(buffer: Any, offset: Node, mask: Node | None = None) -> Node:
    """Returns the element of `buffer` (program.Buffer) at a flat element offset, or 0 where `mask` (BOOL) is
    false."""
    assert offset.dtype is DType.I64
    return Node(Op.LOAD, buffer.dtype, (offset,) if mask is None else (offset, mask), buffer)


def cast(dtype: DType, value: Node) -> Node:
    return value if value.dtype is dtype else Node(Op.CAST, dtype, (value,))


def unary(op: Op, value: Node) -> Node:
    return Node(op, DType.BOOL if op in PREDICATES else value.dtype, (value,))


def binary(op: Op, a: Node, b: Node) -> Node:
    assert a.dtype is b.dtype, f"{op}: {a.dtype} and {b.dtype}"
    return Node(op, DType.BOOL if op in COMPARES else a.dtype, (a, b))


def where(condition: Node, a: Node, b: Node) -> Node:
    assert condition.dtype is DType.BOOL and a.dtype is b.dtype
    return Node(Op.WHERE, a.dtype, (condition, a, b))


def random(dtype: DType, seed: Node, offset: Node, position: Node, stream: Any) -> Node:
    """Returns the number of `stream` (a philox.Stream) at `position`; `dtype` is F32 or I32."""
    return Node(Op.RANDOM, dtype, (seed, offset, position), stream)


def reduce(kind: str, axes: tuple[Axis, ...], value: Node) -> Node:
    """Reduces `value` over `axes`; the result has value's dtype (I64 for argmax/argmin, BOOL for any/all)."""
    assert axes
    dtype = DType.I64 if REDUCTIONS[kind].position else value.dtype
    return Node(Op.REDUCE, dtype, (value,), Reduce(kind, axes))
