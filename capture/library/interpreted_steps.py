"""PyTorch's fused optimizer kernels, tensor by tensor, as code to interpret (`optimizers.py` says when).

On the CPU, counts of steps are numbers. On a GPU they are tensors there, and what depends only on them is
computed in double precision; 16-bit numbers are rounded once, when they are stored.
"""

from __future__ import annotations

from typing import Any

import torch

Tensors = list[torch.Tensor]


def fused_adam(
    decoupled: bool,
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
) -> None:
    for k, param in enumerate(params):
        grad, exp_avg, exp_avg_sq = grads[k], exp_avgs[k], exp_avg_sqs[k]
        if maximize:
            grad = -grad
        if weight_decay != 0:
            if decoupled:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad.add(param, alpha=weight_decay)
        step = state_steps[k].item()
        exp_avg.lerp_(grad, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        largest = exp_avg_sq
        if amsgrad:
            largest = max_exp_avg_sqs[k]
            torch.maximum(largest, exp_avg_sq, out=largest)
        denom = (largest.sqrt() / (1 - beta2**step) ** 0.5).add_(eps)
        param.addcdiv_(exp_avg, denom, value=-(lr / (1 - beta1**step)))


def fused_adam_on_gpu(
    decoupled: bool,
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: float | torch.Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
) -> None:
    rate = _rate(lr)
    for k, param in enumerate(params):
        value, grad, mean, square = map(_wide, (param, grads[k], exp_avgs[k], exp_avg_sqs[k]))
        if maximize:
            grad = -grad
        if weight_decay != 0:
            if decoupled:
                value.sub_(value * (rate * weight_decay))
            else:
                grad = grad + value * weight_decay
        mean.mul_(beta1).add_(grad * (1 - beta1))
        square.mul_(beta2).add_(grad * grad * (1 - beta2))
        step = state_steps[k].double()
        size = (rate / (1 - beta1**step)).to(value.dtype)
        root = (1 - beta2**step).sqrt().to(value.dtype)
        largest = square
        if amsgrad:
            largest = _wide(max_exp_avg_sqs[k])
            torch.maximum(largest, square, out=largest)
            _store(max_exp_avg_sqs[k], largest)
        value.sub_(mean * size / (largest.sqrt() / root + eps))
        _store(param, value)
        _store(exp_avgs[k], mean)
        _store(exp_avg_sqs[k], square)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor that GPU kernels compute with: the tensor itself or a copy."""
    return tensor.float() if tensor.dtype.itemsize == 2 else tensor


def _store(tensor: torch.Tensor, wide: torch.Tensor) -> None:
    if wide is not tensor:
        tensor.copy_(wide)


def _rate(lr: float | torch.Tensor) -> Any:
    return lr.double() if isinstance(lr, torch.Tensor) else lr


def fused_sgd_on_gpu(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: float | torch.Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> None:
    rate = _rate(lr)
    for k, param in enumerate(params):
        value, grad = _wide(param), _wide(grads[k])
        if maximize:
            grad = -grad
        if weight_decay != 0:
            grad = grad + value * weight_decay
        if momentum != 0:
            if is_first_step:
                moved = grad
                momentum_buffers[k].copy_(moved)
            else:
                moved = _wide(momentum_buffers[k])
                moved.mul_(momentum).add_(grad * (1 - dampening))
                _store(momentum_buffers[k], moved)
            grad = grad + moved * momentum if nesterov else moved
        value.sub_(grad * rate)
        _store(param, value)


def fused_adagrad_on_gpu(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: float | torch.Tensor,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    rate = _rate(lr)
    for k, param in enumerate(params):
        value, grad = _wide(param), _wide(grads[k])
        if maximize:
            grad = -grad
        if weight_decay != 0:
            grad = grad + value * weight_decay
        total = _wide(state_sums[k])
        total.add_(grad * grad)
        size = (rate / (1 + (state_steps[k].double() - 1) * lr_decay)).to(value.dtype)
        value.sub_(grad * size / (total.sqrt() + eps))
        _store(state_sums[k], total)
        _store(param, value)


def fused_sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> None:
    for k, param in enumerate(params):
        grad = grads[k]
        if maximize:
            grad = -grad
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        if momentum != 0:
            buffer = momentum_buffers[k]
            if is_first_step:
                buffer.copy_(grad)
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
        param.add_(grad, alpha=-lr)


def fused_adagrad(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: float,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    for k, param in enumerate(params):
        grad, state_sum = grads[k], state_sums[k]
        if maximize:
            grad = -grad
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        step = state_steps[k].item()
        state_sum.addcmul_(grad, grad, value=1)
        param.addcdiv_(grad, state_sum.sqrt().add_(eps), value=-(lr / (1 + (step - 1) * lr_decay)))
