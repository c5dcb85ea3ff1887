"""Decides which sizes and numbers are dynamic: those that had another value in an earlier capture of the same
function.

At first a number has a guard on its value. When no entry accepts a call, all numbers that differ from their
former values become inputs of the graph together (values/numbers/symbolic.py). So a learning rate or a
counter takes two compiles, and not one per value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.symbolic.container_lengths import Lengths
from frameloom.capture.symbolic.marks import marks_of
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.sized import SizedMeta
from frameloom.capture.values.const import ConstValue
from frameloom.debug import log
from frameloom.errors import Skip
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int, Size

if TYPE_CHECKING:
    from types import CodeType

    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.tensors.fake import Fake
    from frameloom.capture.values.base import Value
    from frameloom.ir.symbolic.shape_env import ShapeEnv


class ReplacedHint(Exception):
    """Sizes of 1 were replaced by other hints, and the code depends on that."""


class Related(Exception):
    """A symbolic size was equal to one that was taken as a constant: both have to be dynamic."""


class NoElements(Skip):
    """A tensor with symbolic sizes has no elements: compiling for this call gains nothing."""


class DynamicPolicy:
    """What is known of the numbers that one jitted function has read."""

    def __init__(self) -> None:
        self.follows_sizes = True
        self.lengths = Lengths()
        self.follows_unbacked = True  # whether a graph may contain unbacked sizes
        self.has_unbacked = False  # whether a graph has contained one
        self._with_sizes = False  # whether any size was symbolic so far
        self.from_the_start = False  # whether all sizes are dynamic in the first capture
        self.small_apart = False  # whether sizes of 1 have entries of their own
        self.replaces_ones = False  # whether the current capture uses another hint for a size of 1
        self._seen: dict[Any, int | float] = {}
        self._dynamic: set[Any] = set()
        self._shapes: dict[Any, tuple[tuple[int, ...], tuple[int, ...], set[int]]] = {}
        # Shapes of which the current capture takes some sizes as constants.
        self._constant: dict[Any, tuple[int, ...]] = {}
        self._outgrown = False  # whether one of them differs after the call

    def begin(self) -> None:
        """Resets the state for a new capture."""
        self.replaces_ones = False
        self._outgrown = False
        self._constant.clear()

    def relate(self, shape_env: ShapeEnv) -> bool:
        """Makes leading sizes dynamic that were taken as constants, but equal the value that a symbolic size
        had to have. Returns whether the capture has to be repeated."""
        constants = {c for n in shape_env.zero if (c := _constant_of(n)) is not None}
        related = [
            place
            for place, shape in self._constant.items()
            if shape and shape[0] in constants and 0 not in self._shapes[place][2]
        ]
        for place in related:
            self._shapes[place][2].add(0)
        return bool(related) or self._outgrown

    def outgrow(self, code: CodeType, origin: Origin, shape: Sequence[Int]) -> None:
        """Makes sizes dynamic where the call leaves a tensor of other sizes at `origin` than before, such as
        a growing cache."""
        place = (code, torch.Tensor, *origin.links())
        before = self._constant.get(place)
        if before is None or len(before) != len(shape) or not self.follows_sizes:
            return
        dynamic = self._shapes[place][2]
        new = {d for d, n in enumerate(before) if d not in dynamic and not same(n, shape[d])}
        dynamic |= new
        self._outgrown = self._outgrown or bool(new)

    def varies(self, code: CodeType, origin: Origin, number: int | float) -> bool:
        """Whether the number at `origin` becomes an input."""
        place = (code, type(number), *origin.links())
        if place in self._dynamic:
            return True
        before = self._seen.setdefault(place, number)
        if before == number or (before != before and number != number):
            return False
        self._dynamic.add(place)
        log("recompiles", f"{origin.path()} became an input: it was {before!r} and is {number!r}")
        return True

    def size_hint(self, code: CodeType, origin: Origin | None, number: int) -> int:
        """Returns the hint of a dynamic int that is used as a size: not 0 or 1, which are special cases in
        much code."""
        if self.small_apart or number not in (0, 1):
            return number
        self.replaces_ones = True
        before = None if origin is None else self._seen.get((code, int, *origin.links()))
        return before if type(before) is int and before > 1 else 2

    def give_up_sizes(self) -> bool:
        """Gives every shape an entry of its own from now on. Returns False if no size was symbolic."""
        gave_up = (self._with_sizes and self.follows_sizes) or (
            self.has_unbacked and self.follows_unbacked
        )
        self.follows_sizes = self.follows_unbacked = False
        return gave_up

    def pattern(self, code: CodeType, origin: Origin, tensor: torch.Tensor) -> Pattern | None:
        """Returns which sizes and strides of the tensor at `origin` are dynamic; None if none is."""
        if tensor.layout is not torch.strided or tensor.is_nested:
            return None
        if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
            return None
        links = origin.links()
        place = (code, torch.Tensor, *links)
        shape, strides = tuple(tensor.shape), tensor.stride()
        marks = marks_of(tensor)
        before, steps, dynamic = self._shapes.setdefault(place, (shape, strides, set()))
        if len(before) != len(shape):
            return None
        for d, (n, m) in enumerate(zip(shape, before, strict=True)):
            if n != m and d not in dynamic:
                dynamic.add(d)
                dynamic.update(e for e in _related_dimensions(tensor, d) if shape[e] > 1)
                log("recompiles", f"{origin.path()}.shape[{d}] varies: it was {m} and is {n}")
        own = isinstance(tensor, torch.nn.Parameter) or any(
            key in ("_buffers", "_parameters") for _, key in links
        )
        if self.from_the_start and not own:
            dynamic.update(d for d, n in enumerate(shape) if n > 1)
        if marks is not None:
            dynamic.update(marks.dynamic)
            dynamic -= marks.static
        if not own and 0 not in shape and (marks is None or not marks.static):
            self._constant[place] = shape
        if not dynamic or not self.follows_sizes:
            return None
        self._with_sizes = True
        if 0 in shape:
            return Pattern(
                {d: shape[d] for d in dynamic if shape[d]}, None, {*range(len(shape))}, {}
            )
        ranges = marks.dynamic if marks is not None else {}
        hints = {d: _hint(ranges.get(d), shape[d], before[d]) for d in dynamic}
        if self.small_apart:
            hints = {d: n for d, n in hints.items() if shape[d] > 1}
            if not hints:
                return None
        self.replaces_ones = self.replaces_ones or any(n != shape[d] for d, n in hints.items())
        order = _order(shape, strides)
        # A stride of 0 marks an expanded dimension rather than a distance, so it is never dynamic.
        loose = {d for d, s in enumerate(strides) if s not in (0, steps[d])}
        loose = loose if order is None else set()
        return Pattern(hints, order, loose, ranges)


class Pattern:
    """How a tensor may differ between calls. `hints` has a hint per dynamic size; `order` the dimensions from
    the innermost outwards if the tensor is dense; otherwise `loose` has the dimensions with dynamic strides.
    """

    def __init__(
        self,
        hints: dict[int, int],
        order: list[int] | None,
        loose: set[int],
        ranges: Mapping[int, tuple[int | None, int | None]],
    ) -> None:
        self.hints = hints
        self.ranges = ranges
        self.order = order
        self.loose = loose
        self.placeholder: Any = None

    def guard(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """Returns the guard's data for _capture.Guards."""
        sizes = tuple(None if d in self.hints else n for d, n in enumerate(tensor.shape))
        if self.order is not None:
            return tensor, sizes, self.order
        return (
            tensor,
            sizes,
            tuple(None if d in self.loose else s for d, s in enumerate(tensor.stride())),
        )

    def fake(self, shape_env: ShapeEnv, tensor: torch.Tensor, origin: Any) -> Fake:
        shape: list[Int] = list(tensor.shape)
        for d, hint in self.hints.items():
            least, most = self.ranges.get(d, (None, None))
            source = Source(self, origin, "dim", d, shape[d])
            shape[d] = shape_env.symbol_within(hint, source, least, most)
        strides: list[Int] = list(tensor.stride())
        if self.order is None:
            for d in self.loose:
                source = Source(self, origin, "stride", d, strides[d])
                strides[d] = shape_env.symbol(strides[d], source, low=0)
                shape_env.assume_not_0(strides[d])
        else:
            step: Int = 1
            for d in self.order:
                strides[d] = step
                step = step * (shape[d] if d in self.hints else max(shape[d], 1))
        return Fake(SizedMeta(shape, strides, tensor.dtype), tensor.device, tensor.requires_grad)


@dataclass(frozen=True, eq=False)
class Source:
    """Source of a symbol: the size ("dim") or stride of a dimension of the tensor at `origin`."""

    pattern: Pattern
    origin: Origin
    kind: str
    dim: int
    actual: int  # in the captured call

    def text(self) -> str:
        return f"{self.origin.path()}.{'shape' if self.kind == 'dim' else 'stride()'}[{self.dim}]"

    def read(self) -> tuple[Any, tuple[Any, ...]]:
        """Returns the call that reads it, in a graph."""
        op = torch.ops.aten.sym_size.int if self.kind == "dim" else torch.ops.aten.sym_stride.int
        return op, (self.pattern.placeholder, self.dim)

    @property
    def placeholder(self) -> Any:
        """The input of the graph that it is read from."""
        return self.pattern.placeholder

    @property
    def reader(self) -> Any:
        """The method of tensors that reads it."""
        return torch.Tensor.size if self.kind == "dim" else torch.Tensor.stride

    def computed_from(self, t: Tracer) -> tuple[Any, list[Value]]:
        """Returns the function and the values from which new code computes it."""
        tensor = t.tensor_of(self.pattern.placeholder.meta["val"])
        assert tensor is not None
        return self.reader, [tensor, ConstValue(self.dim)]


def _constant_of(n: Size) -> int | None:
    """Returns the value that a dimension must have if `n` is zero; None if `n` is not of that form."""
    terms = dict(n.terms)
    constant = terms.pop((), 0)
    symbols = [m[0] for m, c in terms.items() if len(m) == 1 and abs(c) == 1]
    if (
        len(terms) != 1
        or not symbols
        or not isinstance(getattr(symbols[0], "source", None), Source)
    ):
        return None
    return abs(constant)


def _related_dimensions(tensor: torch.Tensor, d: int) -> range:
    """Returns the dimensions that are likely to be dynamic where `d` is: both sizes of a batch of sequences
    change sooner or later. The last dimension of floating point tensors mostly holds features; of images and
    attention heads, only the batch size is likely to change."""
    rank = tensor.dim()
    if rank > 3:
        return range(min(d, 1))
    return range(rank - 1 if tensor.is_floating_point() else rank)


def _hint(within: tuple[int | None, int | None] | None, *sizes: int) -> int:
    """Returns a hint for a size: not 1, which is a special case in much code, and within the user's range."""
    least, most = within or (None, None)
    for n in (*sizes, 2, least, most):
        if n is not None and n > 1 and (least or n) <= n <= (most or n):
            return n
    return 2


def _order(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Returns the dimensions from the innermost outwards if the tensor is dense, as a fresh tensor is."""
    rank = len(shape)
    by_stride = sorted(range(rank), key=lambda d: (strides[d], shape[d]))
    for order in (list(range(rank - 1, -1, -1)), [1, 3, 2, 0], [1, 4, 3, 2, 0], by_stride):
        step = 1
        if len(order) != rank:
            continue
        for d in order:
            if strides[d] != step:
                break
            step *= max(shape[d], 1)
        else:
            return order
    return None
