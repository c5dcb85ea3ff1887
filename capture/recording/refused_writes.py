"""Detects writes that have no functional form, and which elements two views of one memory share. The result
of an op that writes one view and reads the other may depend on the order of its elements.

A view is followed to the nearest tensor that both are views of, as an arithmetic progression of positions
along each of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from frameloom.capture.shapes.iteration import is_dense
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import IDENTITIES, OWN_INVERSE, view_chain
from frameloom.capture.tensors.schema import is_out, is_plain
from frameloom.ir.strides import overlaps
from frameloom.ir.symbolic.expr import Int, Size, hint_of, may_exceed_1

aten = torch.ops.aten


def refusal(func: Any, targets: Sequence[Fake], operands: Sequence[Fake]) -> str | None:
    """Returns why writing to `targets` has no functional form; None if it has one."""
    if func is aten.rrelu_with_noise.default and not is_plain(operands[0]):
        return "of one with other strides"  # its functional form keeps the strides
    if func is aten.abs_.default and targets[0].is_complex():
        return "of complex numbers"
    if func is aten.linalg_lu_solve.out and targets[0].is_complex():
        return "of complex numbers"  # the result may be lazily conjugated
    beside: dict[int, list[Fake]] = {}
    for t in operands:
        beside.setdefault(id(t.memory), []).append(t)
    for target in targets:
        if target.meta.is_conj() or target.meta.is_neg():
            return "on a lazily conjugated or negated tensor"
        sizes = zip(target.shape, target.stride(), strict=True)
        if any(may_exceed_1(n) and s == 0 for n, s in sizes) and 0 not in target.shape:
            return "on a tensor whose elements share memory"
        root = target.memory.root
        if not root.is_contiguous() and overlaps(root.shape, root.stride()):
            return "on a part of a tensor whose elements share memory"
        own = func is aten.copy_.default or _is_pointwise(func)
        same = [t for t in beside[id(target.memory)] if t is target]
        if len(same) > 1 and not own:
            return "on a tensor that it also reads"  # many ops refuse that
        for t in beside[id(target.memory)]:
            if t is not target and _overlap(target, t, own):
                return "on tensors that overlap"
        out = is_out(func)
        if out and not target.numel() and torch.Tag.pointwise not in func.tags:
            return "into an empty tensor"  # some ops change its layout
        if target.is_contiguous():
            continue
        if torch.Tag.nondeterministic_seeded in func.tags:  # the order of memory matters
            return "on a tensor that is not contiguous"
        if out and torch.Tag.pointwise not in func.tags:
            return "into a tensor that is not contiguous"  # some ops change its layout
    return None


def _is_pointwise(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags or func.name().startswith("aten::_foreach_")


def _overlap(a: Fake, b: Fake, pointwise: bool) -> bool:
    """Whether eager refuses to write to `a` and read `b`, or reads elements that it has written. Source:
    `get_overlap_status` of ATen's MemoryOverlap."""
    if not a.numel() or not b.numel():
        return False
    if not (is_dense(a) and is_dense(b)):
        return _disturbs(a, b, pointwise)
    start, other = (t.storage_offset() * t.element_size() for t in (a, b))
    end, other_end = start + a.numel() * a.element_size(), other + b.numel() * b.element_size()
    if (start, end) == (other, other_end):
        return not pointwise or a.stride() != b.stride()
    return start < other_end and other < end


@dataclass(frozen=True)
class Positions:
    """Positions along one dimension of the base tensor."""

    start: Int
    step: Int
    count: Int

    def apart_from(self, other: Positions) -> bool:
        if self._end() <= other.start or other._end() <= self.start:
            return True
        step, between = self.step, other.start - self.start
        plain = not isinstance(step, Size) and not isinstance(between, Size)
        return plain and other.step == step > 1 and between % step != 0

    def _end(self) -> Int:
        return self.start + (self.count - 1) * self.step + 1


@dataclass(frozen=True)
class Region:
    """`places` has, for each dimension of the view, the base dimension along which it runs; None for inserted
    dimensions of size 1."""

    axes: tuple[Positions, ...]
    places: tuple[int | None, ...]


def _disturbs(target: Fake, other: Fake, pointwise: bool) -> bool:
    """Whether an op that writes `target` step by step may read elements of `other` that it has already
    written. Then its result depends on its order, which is from lower to higher addresses for elementwise
    ops."""
    chain = view_chain(target)
    base = next((f for f in reversed(view_chain(other)) if any(f is g for g in chain)), None)
    if base is None or overlaps(base.shape, base.stride()):
        return True
    written, read = _region(target, base), _region(other, base)
    if written is None or read is None:
        return True
    if any(a.apart_from(b) for a, b in zip(written.axes, read.axes, strict=True)):
        return False
    if written.places != read.places or not all(
        (a.step, a.count) == (b.step, b.count) for a, b in zip(written.axes, read.axes, strict=True)
    ):
        return True
    order = sorted(range(base.dim()), key=lambda d: -hint_of(base.stride(d)))
    for d in order:
        if written.axes[d].start != read.axes[d].start:
            return not pointwise or bool(written.axes[d].start > read.axes[d].start)
    return False


def _region(fake: Fake, base: Fake) -> Region | None:
    """Returns the region of `base` that `fake` views; None if a view between them is of another kind."""
    if fake is base:
        axes = tuple(Positions(0, 1, n) for n in base.shape)
        return Region(axes, tuple(range(len(axes))))
    view = fake.view_of
    inside = _region(view.parent, base)
    if inside is None:
        return None
    func, places = view.func, list(inside.places)
    if func in IDENTITIES or (func is aten.expand.default and fake.shape == view.parent.shape):
        return inside
    if func in OWN_INVERSE:
        d, e = view.args if view.args else (0, -1)
        if len(places) > 1:
            places[d], places[e] = places[e], places[d]
        return replace(inside, places=tuple(places))
    if func is aten.permute.default:
        return replace(inside, places=tuple(places[d] for d in view.args[0]))
    if func is aten.unsqueeze.default:
        places.insert(view.args[0] % len(fake.shape), None)
        return replace(inside, places=tuple(places))
    if func not in (aten.slice.Tensor, aten.select.int):
        return None
    return _narrowed(inside, fake, view.parent, view.args)


def _narrowed(inside: Region, fake: Fake, parent: Fake, args: Sequence[Int]) -> Region | None:
    selects = fake.dim() < parent.dim()
    d = (args[0] if args else 0) % parent.dim()
    start = args[1] if len(args) > 1 else None
    place = inside.places[d]
    if place is None:
        return None
    start = 0 if start is None else start
    if start < 0:
        start = start + parent.shape[d]
    step = 1 if selects or len(args) < 4 else args[3]
    before = inside.axes[place]
    count = 1 if selects else fake.shape[d]
    after = Positions(before.start + start * before.step, before.step * step, count)
    axes = tuple(after if k == place else a for k, a in enumerate(inside.axes))
    places = inside.places[:d] + (() if selects else (place,)) + inside.places[d + 1 :]
    return Region(axes, places)
