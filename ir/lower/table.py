"""The table of lowerings: what a lowering function receives and returns.

    @lowering("aten.sum.dim_IntList")
    def sum_dims(call, x, dims, keepdim, dtype): ...

A lowering receives the Call and every argument of the op's schema, in order, with defaults filled in; tensors
are Refs.  It returns the element at `call.at()` of the result as an Expr (for ops with several results, a
list with one per result), or a Scattered if data decides which elements the op changes.  If it raises
Decline, the op becomes a library call.  The driver (driver.py) casts to the result's dtype and stores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr
from frameloom.ir.node import Axis, Node, axis, load, random
from frameloom.ir.ops import Op
from frameloom.ir.philox import Generator, Source, Stream
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.substitute import TRUE, space
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, hint_of

Lowering = Callable[..., Any]
Function = TypeVar("Function", bound=Callable[..., Any])
IfEmpty = Literal["nothing", "ask", "library"]
TABLE: dict[str, Lowering] = {}
IF_EMPTY: dict[str, IfEmpty] = {}
ELEMENTWISE: set[str] = set()  # each result element depends only on operand elements at its place
TAKES_NUMBERS: set[str] = set()  # lowerings that accept numbers known only at run time
TAKES_SIZES: set[str] = set()  # lowerings that accept symbolic sizes in place of numbers


class Decline(Exception):
    """This case is not lowered to loops; it becomes a library call."""


def lowering(
    *targets: str,
    if_empty: IfEmpty = "nothing",
    numbers: bool = False,
    sizes: bool = False,
    elementwise: bool = False,
) -> Callable[[Function], Function]:
    """Registers a lowering for ATen overloads.

    `if_empty`: what happens if no result has elements.  "nothing": no loop runs.  "ask": the lowering is
    called, because eager may raise.  "library": a library call, unless no operand has elements either,
    because any index is out of bounds then.
    `numbers`: it accepts numbers that are known only at run time (numbers.py).  `sizes`: it accepts symbolic
    sizes in place of numbers.  `elementwise`: it uses shapes only for broadcasting."""

    def register(function: Function) -> Function:
        for target in targets:
            assert target not in TABLE, f"{target} has two lowerings"
            TABLE[target] = function
        IF_EMPTY.update(dict.fromkeys(targets, if_empty))
        if sizes:
            TAKES_SIZES.update(targets)
        if numbers:
            TAKES_NUMBERS.update(targets)
        if elementwise:
            ELEMENTWISE.update(targets)
        return function

    return register


@dataclass(frozen=True, slots=True)
class Ref:
    """A strided tensor over a buffer.  `dtype` is None if loops cannot read it (complex, or a view of other
    dtype)."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: DType | None
    torch_dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return product(self.shape)


@dataclass(frozen=True, slots=True)
class Result:
    """Geometry of one result of the op, the same as eager's."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    torch_dtype: Any


@dataclass(slots=True)
class Draw:
    """Takes numbers from the generator.  `aligned`: the input whose address must be a multiple of
    philox.ALIGNMENT."""

    increment: int
    name: str
    device: str
    aligned: str | None = None

    @property
    def numbers(self) -> tuple[Buffer, Buffer]:
        """The buffers of seed and offset."""
        names = f"{self.name}_seed", f"{self.name}_offset"
        seed, offset = (
            Buffer(n, DType.I64, (), (), Kind.NUMBER, device=self.device) for n in names
        )
        return seed, offset


@dataclass(frozen=True, slots=True)
class Update:
    """For every position of `axes` where `mask` holds, the element `at` is combined with `value` by a scatter
    of this kind.  Where the mask holds, `at` is inside the tensor."""

    kind: str
    axes: tuple[Axis, ...]
    at: tuple[Node, ...]
    mask: Node
    value: Expr


@dataclass(frozen=True, slots=True)
class Scattered:
    """A result that starts as `initial` (the element at its positions); the updates change elements that data
    selects."""

    initial: Expr
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The op being lowered and its results."""

    target: str
    names: tuple[str, ...]  # of the arguments in the op's schema
    results: tuple[Result, ...]
    checks: list[tuple[Node, str, str]] = field(default_factory=list)
    node: str = ""
    device: str = "cpu"
    generator_of: Callable[[str], Generator | None] = lambda device: None
    source: Source | None = None
    # Whether the result is only stored in memory, and nothing is computed from it.
    is_only_stored: Callable[[], bool] = lambda: False
    # Whether the graph uses this result (of several).
    is_used: Callable[[int], bool] = lambda result: True
    draws: list[Draw] = field(default_factory=list)
    # Temporary tensors of the op.
    temporaries: list[tuple[Ref, Scattered]] = field(default_factory=list)

    def check(self, holds: Expr, exception: str, message: str) -> None:
        """Adds a check: the call raises `exception` (a builtin's name), as eager does, if `holds` is false
        anywhere."""
        self.checks.append(((~holds).node, exception, message))

    @property
    def generator(self) -> Generator:
        """The generator of the device's random numbers; raises Decline if only the library can draw them."""
        generator = self.generator_of(self.device)
        if generator is None:
            raise Decline
        return generator

    def draw(self, stream: Stream, position: Node, count: int) -> Expr:
        """Returns the number in (0, 1] at `position` of a draw of `count`."""
        draw = Draw(self.generator.increment(count), f"{self.node}_{len(self.draws)}", self.device)
        self.draws.append(draw)
        seed, offset = (load(b, index.index(0)) for b in draw.numbers)
        return Expr(random(DType.F32, seed, offset, position, stream))

    def temporary(self, value: Scattered, of: Result) -> Ref:
        """Returns a temporary tensor with the shape and dtype of a result; it is computed before the
        results."""
        strides = tuple(product(of.shape[d + 1 :]) for d in range(len(of.shape)))
        name = f"{self.node}_made{len(self.temporaries)}"
        buffer = Buffer(name, of.dtype, of.shape, strides, Kind.TEMP, device=self.device)
        ref = Ref(buffer, of.shape, strides, 0, of.dtype, of.torch_dtype)
        self.temporaries.append((ref, value))
        return ref

    @property
    def shape(self) -> tuple[int, ...]:
        return self.results[0].shape

    @property
    def dtype(self) -> DType:
        return self.results[0].dtype

    def at(self, result: int = 0) -> list[Node]:
        """Returns the position of the element to compute, one index node per dimension."""
        return positions(self.results[result].shape)


def product(extents: Sequence[int]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def broadcasts(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a tensor of this shape can be expanded to `whole`."""
    pairs = zip(shape[::-1], whole[::-1], strict=False)
    return len(shape) <= len(whole) and all(mine in (1, other) for mine, other in pairs)


def positions(shape: Sequence[int]) -> list[Node]:
    """Returns canonical positions in a tensor of this shape; dimensions of size 1 need no axis."""
    return list(_positions(tuple(shape)))


@functools.lru_cache(4096)
def _positions(shape: tuple[int, ...]) -> tuple[Node, ...]:
    axes = iter(space([extent for extent in shape if extent != 1]))
    return tuple(axis(next(axes)) if extent != 1 else index.index(0) for extent in shape)


def dimension(dim: int, ndim: int) -> int:
    """Returns `dim` counted from the front."""
    return dim + max(ndim, 1) if dim < 0 else dim


def dimensions(dims: int | Sequence[int] | None, ndim: int) -> list[int]:
    """Returns `dims` counted from the front, sorted; None or empty means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(ndim))
    if isinstance(dims, int):
        dims = [dims]
    return sorted({dimension(d, ndim) for d in dims} - ({0} if ndim == 0 else set()))


def read(ref: Ref, at: Sequence[Node], mask: Node | None = None) -> Expr:
    """Returns the element of `ref` at a position, or 0 where `mask` is false; leading dimensions that `ref`
    lacks and dimensions of size 1 are broadcast."""
    if ref.dtype is None:
        raise Decline
    if mask is TRUE:
        mask = None
    own = tuple(at[len(at) - ref.ndim :])
    if mask is None and any(map(_is_beyond, own, ref.shape)):
        raise Decline
    offset = _offset(own, ref.shape, ref.strides, ref.offset)
    return Expr(load(ref.buffer, offset, mask))


@functools.lru_cache(4096)
def _is_beyond(position: Node, extent: Int) -> bool:
    """Whether, in the captured call, the axis is longer than the dimension that is read along it.  The
    dimension should be broadcast then, but the form of its symbolic size does not show that it is 1."""
    if position.op is not Op.AXIS or not isinstance(extent, Size):
        return False
    long = position.arg.extent
    return not unbacked_in(extent) and not unbacked_in(long) and hint_of(long) > extent.hint


@functools.lru_cache(4096)
def _offset(
    at: tuple[Node, ...], shape: tuple[int, ...], strides: tuple[int, ...], start: int
) -> Node:
    pairs = [
        (p, stride) for p, extent, stride in zip(at, shape, strides, strict=True) if extent != 1
    ]
    return index.linear([p for p, _ in pairs], [s for _, s in pairs], start)
