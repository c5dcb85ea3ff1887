"""Convolutions on channels-last tensors, for the nodes that channels_last.py chose.

On a GPU a loop adds the bias, and fuses with what follows: cuDNN's caller would add it in a separate kernel.
Convolutions with one-pixel windows become matrix products if that is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.lower.geometry import is_constant, origin, result_of, store_of, view_of
from frameloom.ir.lower.layout import channels_last, onednn
from frameloom.ir.lower.layout.channels_last import CONVOLUTION
from frameloom.ir.lower.layout.relayout import as_returned, restrided
from frameloom.ir.lower.table import TABLE, Call, Decline, Ref, Result
from frameloom.ir.program import Buffer, Extern, Kind, is_cuda
from frameloom.ir.symbolic.expr import number

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering


@dataclass(frozen=True, slots=True)
class _Convolution:
    """`options` are the op's arguments after the bias; `meta` is the geometry of the result, channels
    last."""

    x: Ref
    weight: Ref
    bias: Ref | None
    options: Sequence[Any]
    meta: Any


def convolution(lowering: Lowering, node: torch.fx.Node, arguments: Sequence[Any]) -> Ref:
    """Returns the result of a convolution that gets channels-last tensors."""
    val: Any = node.meta["val"]
    x, weight, bias = (lowering.argument(a) for a in arguments[:3])
    x = restrided(lowering, x, channels_last.channels_last_strides(x.shape), node)
    meta = channels_last.RestridedTensor(val, channels_last.channels_last_strides(val.shape))
    c = _Convolution(x, weight, bias, arguments[3:], meta)
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
    buffer = Buffer(node.name, a.dtype, shape, (shape[1], 1), Kind.EXTERN)
    lowering.base_offset[buffer] = 0
    lowering.steps.append(Extern(*call, (), (buffer,), origin(node)))
    ref = replace(
        a, buffer=buffer, shape=tuple(map(number, c.meta.shape)), strides=c.meta.stride(), offset=0
    )
    return as_returned(lowering, node, ref)


def _on_a_gpu(lowering: Lowering, node: torch.fx.Node, c: _Convolution) -> Ref:
    val: Any = node.meta["val"]
    matrices = channels_last.as_product(c.x, c.weight, c.options)
    kind = Kind.OUTPUT if (node, 0) in lowering.returned else Kind.TEMP
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
    buffer = Buffer(name, a.dtype, shape, (shape[1], 1), kind, device=a.buffer.device)
    lowering.base_offset[buffer] = 0
    ref = replace(a, buffer=buffer, shape=shape, strides=buffer.strides, offset=0)
    assert a.dtype is not None
    call = Call(target, ("self", "mat2"), (Result(shape, ref.strides, a.dtype, a.torch_dtype),))
    try:
        value = TABLE[target](call, a, b)
        lowering.steps.append(lowering.kernel(target, store_of(ref, value), node))
    except Decline:
        given = (view_of(a), view_of(b))
        lowering.steps.append(Extern(target, given, (), (buffer,), origin(node)))
    return replace(ref, shape=tuple(map(number, meta.shape)), strides=meta.stride())
