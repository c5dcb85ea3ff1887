"""Derivatives of convolutions on channels-last tensors, for the nodes that channels_last.py chose (on a GPU).

Derivatives of convolutions with one-pixel windows are matrix products, like these convolutions.  The bias's
gradient is a sum, which fuses with the kernel that computes the gradient that it sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.geometry import origin, result_of, store_of
from frameloom.ir.lower.layout import channels_last, depthwise, relayout
from frameloom.ir.lower.layout.channels_last import BACKWARD, RestridedTensor, channels_last_strides
from frameloom.ir.lower.layout.convolution import matrix_product
from frameloom.ir.lower.table import TABLE, Call, Ref
from frameloom.ir.program import Buffer, Extern, Kind
from frameloom.ir.symbolic.expr import number

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering

SUM = "aten.sum.dim_IntList"


def convolution_backward(
    lowering: Lowering, node: torch.fx.Node, arguments: Sequence[Any]
) -> list[Ref | None]:
    """Returns the gradients of input, weight and bias; None for a gradient that is not requested."""
    refs = [lowering.argument(a) for a in arguments[:3]]
    grad, x, weight = (
        relayout.restrided(lowering, r, channels_last_strides(r.shape), node) for r in refs
    )
    options, mask = arguments[4:10], arguments[10]
    metas: Any = node.meta["val"]
    internal_metas = [
        v if v is None else RestridedTensor(v, channels_last_strides(v.shape)) for v in metas[:2]
    ]
    matrices = channels_last.as_product(x, weight, options)
    gradients: list[Ref | None] = [None, None, None]
    if (alone := depthwise.depthwise(grad, x, weight, options)) is not None:
        for k, of in enumerate((alone.of_input, alone.of_weight)):
            if mask[k] and (value := of()) is not None:
                gradients[k] = _loop(lowering, node, k, value, internal_metas[k])
    if matrices is None:
        missing = [wanted and ref is None for wanted, ref in zip(mask[:2], gradients, strict=False)]
        if any(missing):
            given = (grad, x, weight, None, *options)
            for k, ref in enumerate(_library(lowering, node, given, missing, internal_metas)):
                gradients[k] = gradients[k] or ref
    else:
        pixels_of_x, (out, channels) = matrices[0], weight.shape[:2]
        flat = replace(grad, shape=(pixels_of_x.shape[0], out), strides=(out, 1))
        if mask[0]:
            rows = replace(weight, shape=(out, channels), strides=(channels, 1))
            gradients[0] = _gradient(lowering, node, 0, flat, rows, internal_metas[0])
        if mask[1]:
            columns = replace(flat, shape=flat.shape[::-1], strides=flat.strides[::-1])
            gradients[1] = _gradient(lowering, node, 1, columns, pixels_of_x, internal_metas[1])
    if mask[2]:
        call = Call(SUM, ("self", "dim", "keepdim", "dtype"), (result_of(metas[2]),))
        value = TABLE[SUM](call, grad, [0, 2, 3], False, None)
        gradients[2] = _loop(lowering, node, 2, value, metas[2])
    return gradients


def _loop(lowering: Lowering, node: torch.fx.Node, k: int, value: Expr, internal_meta: Any) -> Ref:
    """Computes the k-th gradient as a loop; `internal_meta`: its geometry if the program does not see it."""
    seen = node.meta["val"][k]
    meta = seen if (node, k) in lowering.visible else internal_meta
    kind = Kind.OUTPUT if (node, k) in lowering.returned else Kind.TEMP
    ref = lowering.ref(lowering.buffer(f"{node.name}_{k}", meta, kind), meta)
    name = SUM if k == 2 else BACKWARD
    lowering.steps.append(lowering.kernel(name, store_of(ref, value), node))
    return ref


def _library(
    lowering: Lowering, node: torch.fx.Node, given: Sequence[Any], mask: Sequence[bool],
    internal_metas: Sequence[Any],
) -> list[Ref | None]:  # fmt: skip
    results: list[Buffer | None] = [None, None, None]
    refs: list[Ref | None] = [None, None]
    for k in range(2):
        if mask[k]:
            buffer = lowering.buffer(f"{node.name}_{k}", internal_metas[k], Kind.EXTERN)
            results[k], refs[k] = buffer, lowering.ref(buffer, internal_metas[k])
    args = lowering.plain((*given, (mask[0], mask[1], False)))
    lowering.steps.append(Extern(BACKWARD, args, (), tuple(results), origin(node)))
    return [ref and relayout.as_returned(lowering, node, ref, k) for k, ref in enumerate(refs)]


def _gradient(
    lowering: Lowering, node: torch.fx.Node, k: int, a: Ref, b: Ref, internal_meta: Any
) -> Ref:
    """Computes the k-th gradient as a @ b."""
    name, seen = f"{node.name}_{k}", node.meta["val"][k]
    if (node, k) not in lowering.visible:
        kind = Kind.OUTPUT if (node, k) in lowering.returned else Kind.TEMP
        return matrix_product(lowering, node, name, a, b, internal_meta, kind)
    if channels_last.is_dense_channels_last(seen.shape, seen.stride()):
        gradient = matrix_product(lowering, node, name, a, b, internal_meta, Kind.OUTPUT)
        return replace(gradient, strides=tuple(map(number, seen.stride())))
    return relayout.as_returned(
        lowering, node, matrix_product(lowering, node, f"{name}_raw", a, b, internal_meta), k
    )
