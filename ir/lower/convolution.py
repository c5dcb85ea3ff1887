"""Depthwise convolutions on a GPU as sums, position by position of the window: what is around joins the loop.

The library's kernels for them are far from the memory's speed, and leave what follows to further kernels.  Products of
16-bit numbers are exact in F32, in which they are added up, as the library does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from frameloom.ir import index
from frameloom.ir.lower.copies import within
from frameloom.ir.lower.expr import Expr, where
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, product, read
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import conjunction

LARGEST = 49  # positions of a window, each of which is written out


def becomes_loop(
    device: str, dtype: torch.dtype, weight: Sequence[int], transposed: bool, groups: int
) -> bool:
    """Whether a convolution with a weight of this shape does: each channel by itself, in a window that is no point."""
    if not is_cuda(device) or not dtype.is_floating_point or transposed:
        return False
    return tuple(weight[:2]) == (groups, 1) and groups > 1 and 1 < product(weight[2:]) <= LARGEST


@lowering("aten.convolution.default")
def convolution(
    call: Call,
    x: Ref,
    weight: Ref,
    bias: Ref | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Expr:
    loop = becomes_loop(x.buffer.device, x.torch_dtype, weight.shape, transposed, groups)
    if not loop or 0 in x.shape or x.dtype is None or weight.dtype is None:
        raise Decline
    batch, channel, *pixel = call.at()
    total = None
    for tap in itertools.product(*map(range, weight.shape[2:])):
        at: list[Node] = []
        inside = []
        for k, position in enumerate(pixel):
            start = index.index(tap[k] * _each(dilation, k) - _each(padding, k))
            at.append(index.add(index.mul(position, index.index(_each(stride, k))), start))
            inside.append(within(at[-1], 0, x.shape[2 + k]))
        allowed = conjunction(*inside)
        settled = allowed.op is Op.CONST
        if settled and not allowed.arg:
            continue
        value = read(x, [batch, channel, *at], None if settled else allowed).wide()
        factor = read(weight, [channel, index.index(0), *map(index.index, tap)]).wide()
        term = value * factor
        if not settled:
            term = where(Expr(allowed), term, 0.0)  # a weight may be infinite
        total = term if total is None else total + term
    if total is None:
        raise Decline
    return total + read(bias, [channel]).wide() if bias is not None else total


def _each(values: Sequence[int], k: int) -> int:
    return values[k] if len(values) > 1 else values[0]
