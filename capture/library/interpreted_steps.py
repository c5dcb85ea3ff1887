"""What PyTorch's fused optimizer kernels of the CPU compute, tensor by tensor, written to be interpreted (`optimizers.py` says when)."""

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
    grad_scale: Any = None,
    found_inf: Any = None,
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
    grad_scale: Any = None,
    found_inf: Any = None,
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
    grad_scale: Any = None,
    found_inf: Any = None,
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
