"""Folds batch norms in evaluation mode into the convolutions before them, if all parameters are constants.

    (conv(x, w) + b - mean) / sqrt(var + eps) * gamma + beta  =  conv(x, w * s) + (b - mean) * s + beta
    with s = gamma / sqrt(var + eps)

The new weight and bias are computed in F64 and rounded once.  Eager rounds other numbers, so the result
differs by about as much as the order of a sum does (a few units of the last place of the largest terms).
Therefore this is done only for constants that the program has frozen.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from frameloom.ir.lower.graph_passes.constants import Constants, Node, computing
from frameloom.ir.lower.layout.channels_last import CONVOLUTION

# Position of "training" among the arguments, or None if there is none.  The first five arguments are input,
# weight, bias, mean and variance.
NORMS: dict[str, int | None] = {
    "aten._native_batch_norm_legit_no_training.default": None,
    "aten._native_batch_norm_legit.default": 5,
    "aten.native_batch_norm.default": 5,
    "aten.cudnn_batch_norm.default": 5,
    "aten.miopen_batch_norm.default": 5,
}


def fold_batch_norms(constants: Constants) -> None:
    """Folds a batch norm into a convolution if it is the only reader of the convolution's result."""
    for node in list(constants.graph.nodes):
        if str(node.target) in NORMS and _is_possible(node, constants):
            _fold(node, constants)


def _is_possible(norm: Node, constants: Constants) -> bool:
    training = NORMS[str(norm.target)]
    conv: Any = norm.args[0]
    if (training is not None and norm.args[training]) or str(conv.target) != CONVOLUTION:
        return False
    if len(conv.users) != 1 or constants.value(conv.args[1]) is None:
        return False
    given = [conv.args[2], *norm.args[1:5]]
    if any(n is not None and constants.value(n) is None for n in given):
        return False
    if norm.args[3] is None or norm.args[4] is None or norm.kwargs:
        return False
    # Only the first result may be used, and it must have the convolution's dtype and strides.
    users = list(norm.users)
    if any(u.target is not operator.getitem or (u.args[1] != 0 and u.users) for u in users):
        return False
    seen, raw = norm.meta["val"][0], conv.meta["val"]
    floating = raw.dtype.is_floating_point and constants.value(conv.args[1]).dtype == raw.dtype
    return floating and seen.dtype == raw.dtype and tuple(seen.stride()) == tuple(raw.stride())


def _fold(norm: Node, constants: Constants) -> None:
    conv: Any = norm.args[0]
    eps = float(norm.args[-1])  # type: ignore[arg-type]
    weight = constants.value(conv.args[1])
    numbers: list[Any] = [
        None if n is None else constants.value(n).double() for n in (conv.args[2], *norm.args[1:5])
    ]
    bias, gamma, beta, mean, variance = numbers
    with computing():
        scale = torch.rsqrt(variance + eps) * (1 if gamma is None else gamma)
        shift = (0 if bias is None else bias) - mean
        shift = shift * scale + (0 if beta is None else beta)
        folded = weight.double() * _per_output(scale, conv)
        new = torch.empty_like(weight).copy_(folded)
    args = list(conv.args)
    args[1] = constants.add(new, conv)
    args[2] = constants.add(shift.to(weight.dtype), conv)
    conv.args = tuple(args)
    for user in list(norm.users):
        if user.args[1] == 0:
            user.replace_all_uses_with(conv)
        constants.graph.erase_node(user)
    constants.graph.erase_node(norm)


def _per_output(scale: torch.Tensor, conv: Node) -> torch.Tensor:
    """Shapes `scale` for multiplication with the weight.  The weight's first dimension is the result's
    channels; for a transposed convolution it is the second, within each group."""
    weight: Any = conv.args[1]
    shape = list(weight.meta["val"].shape)
    transposed, groups = conv.args[6], int(conv.args[8])  # type: ignore[arg-type]
    if not transposed:
        return scale.view(-1, *[1] * (len(shape) - 1))
    per_group = scale.view(groups, 1, shape[1]).expand(groups, shape[0] // groups, shape[1])
    return per_group.reshape(shape[0], shape[1], *[1] * (len(shape) - 2))
