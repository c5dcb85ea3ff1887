"""Makes derivatives equal to those of plain tensors where PyTorch computes them differently for tensor
subclasses, which Fakes are.

For a product, PyTorch checks whether any factor is zero; if none is, it divides the product by each factor.
That overflows and rounds where the products of the other factors, which it computes for subclasses, do not.
For an extreme value on the CPU, it fills zeros with the gradient at the positions of the extreme. For
subclasses, and on GPUs, it multiplies: an infinite gradient then makes NaNs, and the result has another
layout.

In: the result of a call. Out: nothing; the node of its history returns the other gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from frameloom.capture.tensors.fake import innermost
from frameloom.capture.tensors.transform_levels import are_active
from frameloom.errors import Break


def derive_as_eager(result: Any) -> None:
    if not isinstance(result, torch.Tensor):
        return
    inside = innermost(result)
    formula = FORMULAS.get(inside.grad_fn.name()) if inside.grad_fn is not None else None
    if formula is not None and are_active():
        # What the formula computes now would belong to a level of the transforms.
        raise Break("gradient", f"{inside.grad_fn.name()} inside a function transform")
    node = result.grad_fn
    instead = formula(node, result) if formula is not None else None
    if instead is not None:
        node.register_hook(partial(_in_place_of_the_first, instead))


def _in_place_of_the_first(
    instead: Callable[..., Any], made: tuple[Any, ...], grads: tuple[Any, ...]
) -> Any:
    return (instead(made[0], grads[0]), *made[1:])


def _of_prod(node: Any, result: torch.Tensor) -> Callable[..., Any] | None:
    """The hook holds values of the node, not the node itself. The node itself has checked that they were not
    changed."""
    if not node._saved_self.dim():
        return None
    dim, keepdim = getattr(node, "_saved_dim", None), getattr(node, "_saved_keepdim", None)
    if dim is not None and dim >= 1 << 63:  # a negative dim
        dim -= 1 << 64
    return partial(_prod_backward, node._saved_self, result.detach(), dim, keepdim)


def _prod_backward(
    x: torch.Tensor, result: torch.Tensor, dim: int | None, keepdim: bool, made: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """Source: `prod_backward` of torch/csrc/autograd/FunctionsManual.cpp."""
    x = x.to(grad.dtype)
    if torch.is_grad_enabled():  # the gradient may be differentiated again
        result = x.prod() if dim is None else x.prod(dim, keepdim)
    zeros = x == 0
    if dim is None:
        made = torch.where(zeros.sum() > 1, 0, made)
    elif not keepdim:
        grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
    quotient = result / x
    divided = grad * (quotient.conj() if x.is_complex() else quotient)
    # In this order, it has eager's layout where no factor is zero.
    return torch.where(zeros.any().logical_not(), divided, made).to(made.dtype)


def _of_extreme(node: Any, result: torch.Tensor) -> Callable[..., Any] | None:
    if result.device.type != "cpu":
        return None
    return partial(_evenly_distribute_backward, node._saved_self, result.detach())


def _evenly_distribute_backward(
    x: torch.Tensor, result: torch.Tensor, made: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    """Source: `evenly_distribute_backward` of torch/csrc/autograd/FunctionsManual.cpp."""
    there = (x == result) | (x.isnan() & result.isnan())
    return x.new_zeros(x.shape).masked_fill(there, grad / there.sum())


FORMULAS: dict[str, Callable[[Any, torch.Tensor], Callable[..., Any] | None]] = {
    "ProdBackward0": _of_prod,
    "ProdBackward1": _of_prod,
    **dict.fromkeys(
        ("MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"), _of_extreme
    ),
}
