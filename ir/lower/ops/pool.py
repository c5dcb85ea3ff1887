"""Pooling, window by window: loops fuse with the operations around them, and unused indices are not written.

A window has a Taps for each pooled dimension.  Small windows are unrolled, position by position; large ones
are reductions (on a GPU only if they do not overlap: otherwise the library's kernels are better, as they read
the same elements again and again).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr, Number, isnan, where
from frameloom.ir.lower.layout.channels_last import is_channels_last
from frameloom.ir.lower.ops.copies import within
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, product, read
from frameloom.ir.node import Axis, Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import TRUE, compare, conjunction, fold, select
from frameloom.ir.symbolic.expr import is_size

MAX_UNROLLED = 32  # positions of a window that is unrolled


@dataclass(frozen=True)
class Taps:
    """One dimension of a window that begins at `start`.  It has at most `count` positions, `step` apart; only
    the first `used` of them count."""

    start: Node
    count: int
    extent: int  # the extent of the image
    step: int = 1
    used: Node | None = None
    apart: bool = True  # whether windows do not overlap

    def position(self, tap: Node) -> Node:
        return index.add(self.start, index.mul(tap, self.step))

    def inside(self, tap: Node) -> Node:
        within_image = within(self.position(tap), 0, self.extent)
        if self.used is None:
            return within_image
        return conjunction(compare(Op.LT, tap, self.used), within_image)


@dataclass(frozen=True)
class Window:
    x: Ref
    batch: tuple[Node, ...]
    taps: tuple[Taps, ...]

    @property
    def size(self) -> int:
        return product([t.count for t in self.taps])

    def element(self, taps: Sequence[Node]) -> tuple[Expr, Node, Node]:
        """Returns the value at a position (0 outside of the image), whether it is inside, and its number in
        the image."""
        at = [t.position(k) for t, k in zip(self.taps, taps, strict=True)]
        inside = conjunction(*(t.inside(k) for t, k in zip(self.taps, taps, strict=True)))
        value = read(self.x, [*self.batch, *at], inside).wide()
        number = index.index(0)
        for t, p in zip(self.taps, at, strict=True):
            number = index.add(index.mul(number, t.extent), p)
        return value, inside, number

    def elements(self) -> Iterator[tuple[Expr, Node, Node]]:
        """Yields all positions that can be inside, in eager's order."""
        for taps in itertools.product(*(range(t.count) for t in self.taps)):
            candidate = self.element([index.index(k) for k in taps])
            if candidate[1].op is not Op.CONST or candidate[1].arg:
                yield candidate

    def folded(self, kind: str, outside: Number) -> Expr:
        """Returns the reduction of all positions; those outside of the image count as `outside`."""
        if self.size <= MAX_UNROLLED:
            total = None
            for value, inside, _ in self.elements():
                if total is None:
                    total = _or(value, inside, outside)
                elif kind == "max":  # of zeros with both signs, the first one
                    better = (value > total) | isnan(value)
                    better = better if inside is TRUE else Expr(inside) & better
                    total = where(better, value, total)
                else:
                    total = total + _or(value, inside, outside)
            assert total is not None
            return total
        if is_cuda(self.x.buffer.device) and any(t.used or not t.apart for t in self.taps):
            raise Decline
        axes = tuple(Axis(f"k{d}x{t.count}", t.count) for d, t in enumerate(self.taps))
        value, inside, _ = self.element([axis(a) for a in axes])
        return Expr(fold(kind, axes, _or(value, inside, outside).node))

    def greatest(self) -> Expr:
        """Returns the number of the last NaN, else of the first of the greatest elements.  If none is greater
        than -inf, it is the first position inside the image."""
        most = place = None
        for value, inside, number in self.elements():
            value = _or(value, inside, -math.inf)
            if most is None or place is None:
                most, place, seen = value, Expr(number), Expr(inside)
                continue
            better = (value > most) | isnan(value)
            place = where(better | (Expr(inside) & ~seen), Expr(number), place)
            most, seen = where(better, value, most), seen | Expr(inside)
        assert place is not None
        return place


def _or(value: Expr, inside: Node, outside: Number) -> Expr:
    # A load outside of the image gives 0.
    return value if inside is TRUE or outside == 0 else where(Expr(inside), value, outside)


# --- windows that slide


def _dims(call: Call) -> int:
    return 3 if "3d" in call.target else 2


def each(values: Sequence[int], n: int) -> Sequence[int]:
    return values if len(values) == n else [values[0]] * n


def _image(call: Call, x: Ref) -> Sequence[int]:
    """Returns the extents of the pooled dimensions."""
    if x.dtype is None or not x.dtype.is_float or 0 in x.shape:
        raise Decline
    if x.dtype.is_half and "avg_pool3d" in call.target and not is_cuda(call.device):
        raise Decline  # eager refuses it, or sums up in 16 bits
    return x.shape[x.ndim - _dims(call) :]


def _sliding(
    call: Call,
    x: Ref,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    result: int = 0,
) -> Window:
    n, image, at = _dims(call), _image(call, x), call.at(result)
    given = [each(v, n) for v in (kernel, stride or kernel, padding, dilation)]
    taps = []
    for position, extent, places, k, s, p, d in zip(
        at[-n:], image, call.results[result].shape[-n:], *given, strict=True
    ):
        if is_size(extent) or is_size(places):
            if p >= k or (d > 1 and p):
                raise Decline  # a window may be only padding
        elif any(all(not 0 <= o * s - p + t * d < extent for t in range(k)) for o in range(places)):
            raise Decline  # a window is only padding
        start = index.add(index.mul(position, s), index.index(-p))
        taps.append(Taps(start, k, extent, d, apart=s >= k))
    return Window(x, tuple(at[:-n]), tuple(taps))


def _prefers_library(call: Call, x: Ref, window: Window) -> bool:
    """Whether the library is better if indices are needed: its CPU kernels are faster for channels-last
    tensors, and large windows have no loop here."""
    if window.size > MAX_UNROLLED:
        return True
    return not is_cuda(call.device) and is_channels_last(x.shape, x.strides)


@lowering("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
    call: Call,
    x: Ref,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[Expr | None]:
    windows = [_sliding(call, x, kernel, stride, padding, dilation, k) for k in (0, 1)]
    return _greatest(call, x, windows)


def _greatest(call: Call, x: Ref, windows: Sequence[Window]) -> list[Expr | None]:
    most = windows[0].folded("max", -math.inf)
    if not call.is_used(1):
        return [most, None]
    if _prefers_library(call, x, windows[1]):
        raise Decline
    return [most, windows[1].greatest()]


@lowering("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    call: Call,
    x: Ref,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Expr:
    window = _sliding(call, x, kernel, stride, padding)
    total = window.folded("sum", 0)
    if divisor is not None:
        return total / float(divisor)
    count = index.index(1)
    for taps, p in zip(window.taps, each(padding, _dims(call)), strict=True):
        # Padding counts, but not the positions that ceil_mode adds behind it.
        margin = p if count_include_pad else 0
        count = index.mul(count, _length(taps, -margin, taps.extent + margin))
    if count.op is Op.CONST:
        return total / float(count.arg)
    return total / Expr(count).cast(total.dtype)


def _length(taps: Taps, low: int, high: int) -> Node:
    """Returns how many positions of a window (of step 1) are in [low, high)."""
    end = index.add(taps.start, index.index(taps.count))
    first, last = index.index(low), index.index(high)
    start = select(compare(Op.LT, taps.start, first), first, taps.start)
    return index.sub(select(compare(Op.GT, end, last), last, end), start)


# --- windows that divide the image


def _dividing(call: Call, x: Ref, result: int = 0) -> Window:
    n, image, at = _dims(call), _image(call, x), call.at(result)
    taps = []
    for position, extent, places in zip(
        at[-n:], image, call.results[result].shape[-n:], strict=True
    ):
        if is_size(extent) or is_size(places):
            raise Decline
        scaled = index.mul(position, extent)
        start = index.floordiv(scaled, places)
        if extent % places == 0:
            taps.append(Taps(start, extent // places, extent))
            continue
        end = index.floordiv(index.add(scaled, index.index(extent + places - 1)), places)
        most = max(-(-(o + 1) * extent // places) - o * extent // places for o in range(places))
        taps.append(Taps(start, most, extent, used=index.sub(end, start)))
    return Window(x, tuple(at[:-n]), tuple(taps))


@lowering("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(call: Call, x: Ref, size: Sequence[int]) -> list[Expr | None]:
    return _greatest(call, x, [_dividing(call, x, k) for k in (0, 1)])


@lowering("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool(call: Call, x: Ref, size: Sequence[int]) -> Expr:
    window = _dividing(call, x)
    total = window.folded("sum", 0)
    for taps in window.taps:
        if taps.used is not None:
            total = total / Expr(taps.used).cast(total.dtype)
        elif taps.count != 1:
            total = total / float(taps.count)
    return total
