"""Computes normalized values for the backward pass again from the statistics.

The result of a normalization is read again by the derivative of the next function (`silu(batch_norm(x))`),
and eager keeps it. The derivative of the normalization itself needs the input and the statistics. From these,
the value takes a few operations per element, with the bits of the forward pass, so it is neither written nor
kept."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.autograd.checkpoint_regions import REGION

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

Node = torch.fx.Node
aten = torch.ops.aten
# Positions of input, weight and bias.
NORMS = {
    aten._native_batch_norm_legit_functional.default: (0, 1, 2),
    aten._native_batch_norm_legit.no_stats: (0, 1, 2),
    aten.native_layer_norm.default: (0, 2, 3),
    aten.native_group_norm.default: (0, 1, 2),
}
SAME = {aten.detach.default, aten.alias.default}
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def renormalize(recorder: Recorder, later: Collection[Node], results: Collection[Node]) -> None:
    """Makes nodes of `later` (the backward pass) read a value that is recomputed, in place of one that
    would be kept for them."""
    made: dict[Node, Node | None] = {}
    for n in [n for n in recorder.graph.nodes if n in later]:
        for read in n.all_input_nodes:
            if read in later or (norm := _norm_behind(read, results)) is None:
                continue
            if not all(_is_per_element(u, read) for u in read.users if u in later):
                continue
            if norm not in made:
                made[norm] = _value(recorder, norm, later, n)
            if (value := made[norm]) is not None:
                n.replace_input_with(read, value)


def _norm_behind(read: Node, results: Collection[Node]) -> Node | None:
    """Returns the normalization whose value `read` is; None if it is something else, or is a result
    anyway."""
    if read in results:
        return None
    if read.target is aten.clone.default:  # a copy of a value that is changed in place later
        return _norm_behind(read.args[0], results)  # type: ignore[arg-type]
    if read.target is not operator.getitem or read.args[1] != 0:
        return None
    norm: Any = read.args[0]
    return norm if norm.target in NORMS and REGION not in norm.meta else None


def _is_per_element(n: Node, read: Node) -> bool:
    target, value = n.target, n.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(value, torch.Tensor):
        return False
    per_element = torch.Tag.pointwise in target.tags or str(target).endswith("_backward.default")
    return per_element and value.shape == read.meta["val"].shape


def _is_read(n: Any, later: Collection[Node]) -> bool:
    """Whether the backward pass needs it anyway."""
    return any(u in later or (u.target in SAME and _is_read(u, later)) for u in n.users)


def _value(recorder: Recorder, norm: Node, later: Collection[Node], before: Node) -> Node | None:
    """Makes the value as a new node before `before`; None where its operands are not kept anyway."""
    x, weight, bias = (norm.args[k] for k in NORMS[norm.target])  # type: ignore[index]
    statistics = {u.args[1]: u for u in norm.users if u.target is operator.getitem}
    mean, deviation = statistics.get(1), statistics.get(2)
    like = x.meta["val"]  # type: ignore[union-attr]
    wide = WIDE.get(like.dtype, like.dtype)

    if mean is None or deviation is None:
        return None
    if not all(n is None or _is_read(n, later) for n in (x, mean, deviation, weight)):
        return None
    if not like.is_floating_point() or mean.meta["val"].dtype is not wide:
        return None
    recorder.current_call.where = norm.meta.get("stack", "")
    if bias is not None and not _is_read(bias, later):
        # Eager does not check whether it is changed before the backward pass.
        with recorder.graph.inserting_before(norm):
            bias = recorder.emit(aten.clone.default, (bias,), {})

    def of(func: Any, *args: Any, **kwargs: Any) -> Node:
        return recorder.emit(func, args, kwargs)  # type: ignore[no-any-return]

    def widened(n: Any) -> Any:
        same = n.meta["val"].dtype is wide
        return n if same else of(aten._to_copy.default, n, dtype=wide)

    with recorder.graph.inserting_before(before):
        mean, deviation = (_over(norm, n, like.shape, of) for n in (mean, deviation))
        value = of(aten.mul.Tensor, of(aten.sub.Tensor, widened(x), mean), deviation)
        if weight is not None:
            value = of(aten.mul.Tensor, value, widened(_along(norm, weight, like.dim(), of)))
        if bias is not None:
            value = of(aten.add.Tensor, value, widened(_along(norm, bias, like.dim(), of)))
        wanted = next(u for u in norm.users if u.args[1] == 0).meta["val"].dtype
        return value if wanted is wide else of(aten._to_copy.default, value, dtype=wanted)


def _over(norm: Node, statistic: Node, shape: Sequence[int], of: Any) -> Node:
    """Returns a statistic in a shape that broadcasts over the input."""
    ones = [1] * (len(shape) - 2)
    if norm.target is aten.native_layer_norm.default:
        return statistic
    if norm.target is not aten.native_group_norm.default:
        return of(aten.view.default, statistic, [1, -1, *ones])  # type: ignore[no-any-return]
    samples, channels, groups = shape[0], shape[1], norm.args[6]
    per_group = of(aten.view.default, statistic, [samples, groups, 1])
    spread = of(aten.expand.default, per_group, [samples, groups, channels // groups])
    return of(aten.view.default, of(aten.clone.default, spread, memory_format=torch.contiguous_format), [samples, channels, *ones])  # type: ignore[no-any-return] # fmt: skip


def _along(norm: Node, parameter: Node, ndim: int, of: Any) -> Node:
    """Returns a weight or bias in a shape that broadcasts over the input."""
    if norm.target is aten.native_layer_norm.default:
        return parameter
    return of(aten.view.default, parameter, [1, -1, *[1] * (ndim - 2)])  # type: ignore[no-any-return]
