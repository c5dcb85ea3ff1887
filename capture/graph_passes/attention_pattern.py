"""Attention that a program writes out: softmax(Q @ K.T * scale + mask) @ V becomes one call of
scaled_dot_product_attention on a GPU.

`recognised` examines every softmax of a captured graph. READERS says how each op makes scores from scores,
starting at the product of query and key. The result of softmax must be used in the product with the values,
and nowhere else.

The fused kernels compute in F32 and do not round scores between ops, as the program would. Other differences
are corrected:
- A query that sees no key (all -inf) has NaN as its result, where fused kernels give 0: NaN is written into
  the mask.
- Scores that are replaced by a finite number (`masked_fill(mask, -1e9)`) are treated as if a number had been
  added that is so low that the scores vanish beside it. F16 has no such number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.capture.shapes.registry import LAYOUTS, infer_node
from frameloom.capture.tensors.fake import Fake

aten = torch.ops.aten
Node = torch.fx.Node
SOFTMAX = (aten._softmax.default, aten._safe_softmax.default)
ATTENTION = aten.scaled_dot_product_attention.default
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDEST = 256  # features per head that the fused kernels support
LOW = -1e4  # among scores, such a number is as good as -inf
LOWEST = -1e30  # beside such a number, scores vanish
SAME = (aten.alias.default, aten.detach.default)
RESHAPES = (aten.view.default, aten._unsafe_view.default)
VIEWS = (*SAME, *RESHAPES, aten.transpose.int, aten.permute.default, aten.unsqueeze.default)


class NotAttention(Exception):
    """This softmax is not part of an attention."""


@dataclass(frozen=True)
class Mask:
    """A tensor that is added to scores of `shape`, or, with `value`, says where that value replaces them
    (`hides`: where the tensor is true)."""

    tensor: Node
    shape: tuple[int, ...]
    value: float | None = None
    hides: bool = True


@dataclass(frozen=True)
class Scores:
    """query @ key * scale + masks"""

    product: Node
    scale: float = 1.0
    masks: tuple[Mask, ...] = ()


def shape_of(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def number(value: Any) -> float | None:
    """Returns a number, or the number from which a tensor was made."""
    if isinstance(value, Node):
        if shape_of(value):
            return None
        if value.target in SAME or value.target is aten._to_copy.default:
            constant = number(value.args[0])
        elif value.target in (aten.full.default, aten.scalar_tensor.default):
            constant = number(value.args[-1])
        else:
            return None
        dtype = value.meta["val"].dtype
        return (
            None
            if constant is None or dtype is torch.bool
            else torch.tensor(constant, dtype=dtype).item()
        )
    return float(value) if type(value) in (int, float) else None


# --- scores from scores


def read(node: Any) -> Scores:
    """Returns `node` as scores."""
    reader = READERS.get(node.target) if isinstance(node, Node) else None
    if reader is None or node.meta["val"].dtype not in DTYPES:
        raise NotAttention
    return reader(node)


def _product(node: Node) -> Scores:
    return Scores(node)


def _plus_product(node: Node) -> Scores:
    """baddbmm(mask, query, key, beta, alpha)"""
    mask: Any = node.args[0]
    beta, alpha = node.kwargs.get("beta", 1), float(node.kwargs.get("alpha", 1))  # type: ignore[arg-type]
    if beta not in (0, 1) or not alpha > 0:
        raise NotAttention
    return Scores(node, alpha, (Mask(mask, shape_of(node)),) if beta else ())


def _same(node: Node) -> Scores:
    return read(node.args[0])


def _reshaped(node: Node) -> Scores:
    if shape_of(node.args[0])[-2:] != shape_of(node)[-2:]:
        raise NotAttention
    return read(node.args[0])


def _times(node: Node) -> Scores:
    """scores * c, c * scores"""
    a, b = node.args
    inner, factor = (a, number(b)) if number(b) is not None else (b, number(a))
    return _scaled(inner, factor)


def _divided(node: Node) -> Scores:
    """scores / c"""
    a, b = node.args
    divisor = number(b)
    return _scaled(a, 1 / divisor if divisor else None)


def _scaled(inner: Any, factor: float | None) -> Scores:
    if factor is None or not 0 < factor < math.inf:
        raise NotAttention
    scores = read(inner)
    if any(m.value is None or m.value * factor > LOW for m in scores.masks):
        raise NotAttention
    return replace(scores, scale=scores.scale * factor)


def _plus(node: Node) -> Scores:
    """scores + mask, mask + scores"""
    a, b = node.args
    if node.kwargs.get("alpha", 1) != 1 or not isinstance(a, Node) or not isinstance(b, Node):
        raise NotAttention
    try:
        scores, mask = read(a), b
    except NotAttention:
        scores, mask, a = read(b), a, b
    if shape_of(a) != shape_of(node):
        raise NotAttention
    return replace(scores, masks=(*scores.masks, Mask(mask, shape_of(node))))


def _filled(node: Node) -> Scores:
    """scores.masked_fill(mask, c)"""
    inner, mask, value = node.args
    return _replaced(node, inner, mask, number(value), hides=True)


def _chosen(node: Node) -> Scores:
    """where(mask, scores, c), where(mask, c, scores)"""
    mask, a, b = node.args
    if number(b) is not None:
        return _replaced(node, a, mask, number(b), hides=False)
    return _replaced(node, b, mask, number(a), hides=True)


def _replaced(node: Node, inner: Any, mask: Any, value: float | None, hides: bool) -> Scores:
    if value is None or not value <= LOW or mask.meta["val"].dtype is not torch.bool:
        raise NotAttention
    scores = read(inner)
    if shape_of(inner) != shape_of(node):
        raise NotAttention
    return replace(scores, masks=(*scores.masks, Mask(mask, shape_of(node), value, hides)))


READERS: dict[Any, Callable[[Node], Scores]] = {
    aten.bmm.default: _product,
    aten.mm.default: _product,
    aten.baddbmm.default: _plus_product,
    **dict.fromkeys((*SAME, aten.clone.default, aten._to_copy.default), _same),
    **dict.fromkeys((*RESHAPES, aten.expand.default), _reshaped),
    aten.mul.Tensor: _times,
    aten.div.Tensor: _divided,
    aten.add.Tensor: _plus,
    **dict.fromkeys((aten.masked_fill.Scalar, aten.masked_fill.Tensor), _filled),
    aten.where.self: _chosen,
}  # fmt: skip

READ_THROUGH = frozenset({*READERS, *VIEWS, *SOFTMAX})


# --- a match


def recognised(captured: CapturedGraph) -> CapturedGraph:
    """Returns `captured` with its attentions as calls of scaled_dot_product_attention."""
    if not any(_on_gpu(n) for n in captured.graph.nodes if n.target in SOFTMAX):
        return captured
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(captured.graph, {}))
    n_rewritten = 0
    for node in list(graph.nodes):
        if node.target in SOFTMAX and _on_gpu(node):
            try:
                _rewrite(graph, node)
                n_rewritten += 1
            except NotAttention:
                pass
    if not n_rewritten:
        return captured
    return replace(captured, graph=graph)


def _on_gpu(node: Node) -> bool:
    return bool(node.meta["val"].device.type == "cuda")


def _rewrite(graph: torch.fx.Graph, softmax: Node) -> None:
    scores_node, dim = softmax.args[:2]
    shape = shape_of(softmax)
    if len(shape) not in (2, 3, 4) or dim not in (-1, len(shape) - 1):
        raise NotAttention
    scores, last = read(scores_node), _product_with_values(softmax)
    *batch, _, _ = shape
    first = scores.product.args[-2:]
    operands = [*first, last.args[1]]
    vals = [o.meta["val"] for o in operands]  # type: ignore[union-attr]
    dtype, device, width = vals[0].dtype, vals[0].device, vals[0].shape[-1]
    compatible = all(v.dtype is dtype and v.device == device for v in vals)
    if not compatible or dtype not in DTYPES or last.meta["val"].dtype is not dtype:
        raise NotAttention
    if not 0 < width <= WIDEST or vals[2].shape[-1] != width or 0 in shape:
        raise NotAttention
    for m in scores.masks:
        kind = m.tensor.meta["val"]
        finite_in_half = m.value not in (None, -math.inf) and dtype is torch.float16
        if (m.value is None and kind.dtype is not dtype) or kind.device != device or finite_in_half:
            raise NotAttention
    build = _Builder(graph, last)
    q = build.operand(operands[0], batch, transposed=False)
    k = build.operand(operands[1], batch, transposed=True)
    v = build.operand(operands[2], batch, transposed=False)
    mask = build.mask(scores, dtype, shape) if scores.masks else None
    out = build(ATTENTION, q, k, v, mask, 0.0, False, scale=scores.scale, enable_gqa=False)
    build.replace(last, out, (*batch, shape[-2], width))
    _erase_unused(graph, last)


def _product_with_values(softmax: Node) -> Node:
    """Returns the product whose first factor is the result of softmax, if that is its only use."""
    node, rows = softmax, shape_of(softmax)[-2:]
    while True:
        if len(node.users) != 1:
            raise NotAttention
        (user,) = node.users
        if user.target in (aten.bmm.default, aten.mm.default):
            if user.args[0] is not node or user.args[1] is node:
                raise NotAttention
            return user
        passing = (*SAME, aten.clone.default, *RESHAPES, aten._to_copy.default, aten.expand.default)
        if user.target not in passing or shape_of(user)[-2:] != rows:
            raise NotAttention
        if math.prod(shape_of(user)) != math.prod(shape_of(softmax)):
            raise NotAttention
        if user.meta["val"].dtype not in DTYPES:
            raise NotAttention
        node = user


class _Builder:
    """Makes nodes before `place`."""

    def __init__(self, graph: torch.fx.Graph, place: Node) -> None:
        self.graph = graph
        self.place = place

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        with self.graph.inserting_before(self.place):
            node = self.graph.call_function(target)
        node.args, node.kwargs = args, kwargs
        meta = infer_node(target, args, kwargs)
        device = self.place.meta["val"].device
        if (layout := LAYOUTS.get(("cuda", target))) is not None:
            plain = [a.meta["val"].meta if isinstance(a, Node) else a for a in args]
            meta = layout(meta, *plain, **kwargs)
        node.meta["val"] = Fake(meta, device)
        if "stack" in self.place.meta:
            node.meta["stack"] = self.place.meta["stack"]
        return node

    # --- operands

    def operand(self, node: Any, batch: list[int], transposed: bool) -> Node:
        """Returns a factor of a product as (batch, heads, positions, features), without copies that only the
        product needed."""
        wanted = (*batch, *shape_of(node)[-2:])
        inner = node
        while shape_of(inner) != wanted and inner.target in (*RESHAPES, *SAME):
            inner = inner.args[0]
        if shape_of(inner) != wanted:
            inner = self(aten.view.default, node, list(wanted))
        source = inner
        while inner.target in (aten.clone.default, *SAME) or (
            inner.target is aten.expand.default and shape_of(inner.args[0]) == wanted
        ):
            inner = inner.args[0]
            if inner.meta["val"].dtype is source.meta["val"].dtype and _is_dense(inner):
                source = inner
        if transposed:
            source = self(aten.transpose.int, source, -2, -1)
        for _ in range(2 - len(batch)):
            source = self(aten.unsqueeze.default, source, 0 if not batch else 1)
            batch = [*batch, 1]
        if source.meta["val"].stride(-1) != 1:
            source = self(aten.clone.default, source, memory_format=torch.contiguous_format)
        return source

    # --- masks

    def mask(self, scores: Scores, dtype: torch.dtype, shape: tuple[int, ...]) -> Node:
        """Returns all masks as one mask that is added."""
        total: Node | None = None
        for m in scores.masks:
            tensor = self.reshaped_mask(m, shape)
            if m.value is not None:
                value = -math.inf if m.value == -math.inf else LOWEST
                hidden = tensor if m.hides else self(aten.logical_not.default, tensor)
                zero = self(aten.full.default, [], 0.0, dtype=dtype, device=self.device)
                tensor = self(aten.masked_fill.Scalar, zero, hidden, value)
            total = tensor if total is None else self(aten.add.Tensor, total, tensor)
        assert total is not None
        if all(m.value is not None and m.value != -math.inf for m in scores.masks):
            return total
        sees = self(aten.any.dim, self(aten.ne.Scalar, total, -math.inf), -1, True)
        nan = self(aten.full.default, [], math.nan, dtype=dtype, device=self.device)
        return self(aten.where.self, sees, total, nan)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.place.meta["val"].device
        return device

    def reshaped_mask(self, mask: Mask, shape: tuple[int, ...]) -> Node:
        """Returns the mask's tensor in a shape that fits the operand of softmax (`shape`), with a dimension
        of heads."""
        own, rows = shape_of(mask.tensor), len(mask.shape) - 2
        if len(own) < 2:
            own = (*(1,) * (2 - len(own)), *own)
        outer, inner = list(own[:-2]), list(own[-2:])
        outer = [1] * (rows - len(outer)) + outer
        if mask.shape[:-2] != shape[:-2]:
            if tuple(outer) == mask.shape[:-2]:
                outer = list(shape[:-2])
            elif all(e == 1 for e in outer):
                outer = [1] * (len(shape) - 2)
            else:
                raise NotAttention
        if len(outer) == 1:
            outer.append(1)
        try:
            return self(aten.view.default, mask.tensor, [*outer, *inner])
        except RuntimeError as error:  # its strides do not allow it
            raise NotAttention from error

    # --- results

    def replace(self, product: Node, out: Node, wanted: tuple[int, ...]) -> None:
        """Replaces the product with the values by `out`. The users of the product see its batch of matrices,
        or a view of shape `wanted`."""
        (user, *others) = product.users
        split = user.target in RESHAPES and shape_of(user) == shape_of(out) == wanted
        if split and not others and _ends_in_copies(user, out.meta["val"].meta):
            self.follow(user, out, alone=True)
            return
        if not out.meta["val"].is_contiguous():
            out = self(aten.clone.default, out, memory_format=torch.contiguous_format)
        product.replace_all_uses_with(self(aten.view.default, out, list(shape_of(product))))

    def follow(self, old: Node, new: Node, alone: bool) -> None:
        """Makes the users of `old` read `new`, which has another layout; drops a copy if its operand already
        has the wanted layout."""
        alone = alone and len(old.users) == 1
        for user in list(old.users):
            if user.target in VIEWS:
                self.follow(user, self(user.target, new, *user.args[1:]), alone)
            elif alone and user.meta["val"].stride() == new.meta["val"].stride():
                user.replace_all_uses_with(new)
            else:
                user.replace_input_with(old, new)


def _ends_in_copies(node: Node, layout: torch.Tensor) -> bool:
    """Whether `node` is only used by views, and by copies of these: then it may have another layout."""
    for user in node.users:
        if user.target in VIEWS:
            try:
                inside = user.target(layout, *user.args[1:])  # type: ignore[operator]
            except RuntimeError:
                return False
            if not _ends_in_copies(user, inside):
                return False
        elif user.target is not aten.clone.default:
            return False
    return bool(node.users)


def _erase_unused(graph: torch.fx.Graph, node: Node) -> None:
    """Erases `node` and the nodes that only it needed."""
    stack = [node]
    while stack:
        n = stack.pop()
        if n.users or n.target not in READ_THROUGH:
            continue
        inputs = n.all_input_nodes
        graph.erase_node(n)
        stack += [i for i in inputs if i is not n]


def _is_dense(node: Node) -> bool:
    val = node.meta["val"]
    return all(s != 0 or e == 1 for e, s in zip(val.shape, val.stride(), strict=True))
