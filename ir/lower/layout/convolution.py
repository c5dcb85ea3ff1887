"""Convolutions and their derivatives on channels-last tensors, for the nodes that channels_last.py chose.

On a GPU a loop adds the bias, and fuses with what follows: cuDNN's caller would add it in a separate kernel.
Convolutions with one-pixel windows become matrix products if that is faster, and so do their derivatives.  The
gradient of the bias is a sum, which fuses with the kernel that computes the gradient that it sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.geometry import is_constant, origin, result_of, store_of, view_of
from frameloom.ir.lower.layout import channels_last, depthwise, onednn
from frameloom.ir.lower.layout.channels_last import BACKWARD, CONVOLUTION, RestridedTensor
from frameloom.ir.lower.layout.relayout import as_returned, restrided
from frameloom.ir.lower.table import TABLE, Call, Decline, Ref, Result
from frameloom.ir.program import Extern, Kind, is_cuda
from frameloom.ir.symbolic.expr import number

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering

SUM = "aten.sum.dim_IntList"


@dataclass(frozen=True, slots=True)
class _Convolution:
    """`options` are the op's arguments after the bias; `meta` is the geometry of the result, channels
    last."""

    x: Ref
    weight: Ref
    bias: Ref | None
    options: Sequence[Any]
    meta: Any


def lowered(lowering: Lowering, node: torch.fx.Node, arguments: Sequence[Any]) -> Any:
    """Returns the result of a node that gets channels-last tensors."""
    derives = str(node.target) == BACKWARD
    return (_derivatives if derives else _convolution)(lowering, node, arguments)


def _as_channels_last(val: Any) -> RestridedTensor:
    return RestridedTensor(val, channels_last.channels_last_strides(val.shape))


def _convolution(lowering: Lowering, node: torch.fx.Node, arguments: Sequence[Any]) -> Ref:
    val: Any = node.meta["val"]
    x, weight, bias = (lowering.argument(a) for a in arguments[:3])
    x = restrided(lowering, x, channels_last.channels_last_strides(x.shape), node)
    c = _Convolution(x, weight, bias, arguments[3:], _as_channels_last(val))
    on_gpu = is_cuda(str(val.device)) or channels_last.everywhere
    if is_constant(weight) and not on_gpu:
        return _packed(lowering, node, c)
    c = replace(
        c,
        weight=restrided(lowering, weight, channels_last.channels_last_strides(weight.shape), node),
    )
    if on_gpu:
        return _on_a_gpu(lowering, node, c)
    return _product_of_onednn(lowering, node, c) or _library(lowering, node, c)


def _packed(lowering: Lowering, node: torch.fx.Node, c: _Convolution) -> Ref:
    """Calls oneDNN with a weight in oneDNN's layout, and with the activation function that follows."""
    last, function = onednn.fused_activation(node, lowering.returned)
    packed = onednn.packed_convolution(lowering, c.weight, c.x.shape, c.options)
    stride, padding, dilation, _, _, groups = c.options
    rest = (packed, c.bias and view_of(c.bias), padding, stride, dilation, groups, function, (), "")
    args = (view_of(c.x), *map(lowering.plain, rest))
    result: Ref = lowering.extern(last, onednn.CONVOLUTION, args, (), [c.meta], False)
    lowering.layouts.precomputed.update(dict.fromkeys((node, last), result))
    return result


def _library(lowering: Lowering, node: torch.fx.Node, c: _Convolution) -> Ref:
    given = lowering.plain((c.x, c.weight, c.bias, *c.options))
    result: Ref = lowering.extern(node, CONVOLUTION, given, (), [c.meta], False)
    return result


def _product_of_onednn(lowering: Lowering, node: torch.fx.Node, c: _Convolution) -> Ref | None:
    matrices = channels_last.as_product(c.x, c.weight, c.options)
    if matrices is None or not lowering.onednn.products:
        return None
    a, b = matrices
    views = [view_of(r) for r in ((c.bias, a, b) if c.bias is not None else (a, b))]
    call = onednn.product(onednn.PRODUCTS[c.bias is not None], views, ())
    if call is None:
        return None
    shape = (a.shape[0], b.shape[1])
    ref = lowering.fresh(node.name, a, shape, (shape[1], 1), Kind.EXTERN)
    lowering.steps.append(Extern(*call, (), (ref.buffer,), origin(node)))
    return as_returned(lowering, node, _with_geometry(ref, c.meta))


def _on_a_gpu(lowering: Lowering, node: torch.fx.Node, c: _Convolution) -> Ref:
    val: Any = node.meta["val"]
    matrices = channels_last.as_product(c.x, c.weight, c.options)
    kind = lowering.kind_of(node)
    visible = (node, 0) in lowering.visible
    if c.bias is None:
        if matrices is not None and not visible:
            return matrix_product(lowering, node, node.name, *matrices, c.meta, kind)
        return _library(lowering, node, c)
    if matrices is not None:
        raw = matrix_product(lowering, node, f"{node.name}_raw", *matrices, c.meta)
    else:
        result = lowering.buffer(f"{node.name}_raw", c.meta, Kind.EXTERN)
        given = lowering.plain((c.x, c.weight, None, *c.options))
        lowering.steps.append(Extern(CONVOLUTION, given, (), (result,), origin(node)))
        raw = lowering.ref(result, c.meta)
    bias = replace(c.bias, shape=(*c.bias.shape, 1, 1), strides=(*c.bias.strides, 0, 0))
    call = Call("aten.add.Tensor", ("self", "other", "alpha"), (result_of(val),))
    value = TABLE[call.target](call, raw, bias, 1)
    meta = val if visible else c.meta
    into = lowering.buffer(node.name, meta, kind)
    ref = lowering.ref(into, meta)
    lowering.steps.append(lowering.kernel("aten.bias", store_of(ref, value), node))
    return ref


def matrix_product(
    lowering: Lowering, node: torch.fx.Node, name: str, a: Ref, b: Ref, meta: Any,
    kind: Kind = Kind.TEMP,
) -> Ref:  # fmt: skip
    """Returns a @ b with the geometry of `meta`; a small product becomes a loop."""
    target, shape = channels_last.PRODUCT, (a.shape[0], b.shape[1])
    ref = lowering.fresh(name, a, shape, (shape[1], 1), kind)
    assert a.dtype is not None
    call = Call(target, ("self", "mat2"), (Result(shape, ref.strides, a.dtype, a.torch_dtype),))
    try:
        value = TABLE[target](call, a, b)
        lowering.steps.append(lowering.kernel(target, store_of(ref, value), node))
    except Decline:
        given = (view_of(a), view_of(b))
        lowering.steps.append(Extern(target, given, (), (ref.buffer,), origin(node)))
    return _with_geometry(ref, meta)


def _with_geometry(ref: Ref, meta: Any) -> Ref:
    return replace(ref, shape=tuple(map(number, meta.shape)), strides=meta.stride())


# --- derivatives


def _derivatives(
    lowering: Lowering, node: torch.fx.Node, arguments: Sequence[Any]
) -> list[Ref | None]:
    """Returns the gradients of input, weight and bias; None for a gradient that is not requested."""
    refs = [lowering.argument(a) for a in arguments[:3]]
    grad, x, weight = (
        restrided(lowering, r, channels_last.channels_last_strides(r.shape), node) for r in refs
    )
    options, mask = arguments[4:10], arguments[10]
    metas: Any = node.meta["val"]
    internal_metas = [v if v is None else _as_channels_last(v) for v in metas[:2]]
    matrices = channels_last.as_product(x, weight, options)
    gradients: list[Ref | None] = [None, None, None]
    if (alone := depthwise.depthwise(grad, x, weight, options)) is not None:
        for k, of in enumerate((alone.of_input, alone.of_weight)):
            if mask[k] and (value := of()) is not None:
                gradients[k] = _loop(lowering, node, k, value, internal_metas[k])
    if matrices is None:
        missing = [wanted and ref is None for wanted, ref in zip(mask[:2], gradients, strict=False)]
        if any(missing):
            args = lowering.plain((grad, x, weight, None, *options, (*missing, False)))
            wanted = [v if k else None for v, k in zip(internal_metas, missing, strict=True)]
            library = lowering.extern(node, BACKWARD, args, (), [*wanted, None], several=True)
            gradients = [own or ref for own, ref in zip(gradients, library, strict=True)]
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
    ref = lowering.ref(lowering.buffer(f"{node.name}_{k}", meta, lowering.kind_of(node, k)), meta)
    name = SUM if k == 2 else BACKWARD
    lowering.steps.append(lowering.kernel(name, store_of(ref, value), node))
    return ref


def _gradient(
    lowering: Lowering, node: torch.fx.Node, k: int, a: Ref, b: Ref, internal_meta: Any
) -> Ref:
    """Computes the k-th gradient as a @ b."""
    name, seen = f"{node.name}_{k}", node.meta["val"][k]
    if (node, k) not in lowering.visible:
        return matrix_product(lowering, node, name, a, b, internal_meta, lowering.kind_of(node, k))
    if channels_last.is_dense_channels_last(seen.shape, seen.stride()):
        gradient = matrix_product(lowering, node, name, a, b, internal_meta, Kind.OUTPUT)
        return replace(gradient, strides=tuple(map(number, seen.stride())))
    return as_returned(
        lowering, node, matrix_product(lowering, node, f"{name}_raw", a, b, internal_meta), k
    )
