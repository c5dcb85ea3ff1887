"""Decompositions of PyTorch functions whose C++ code asks for plain sizes, for tensors with symbolic sizes.

Each does what the function does, step by step. For cases that it does not cover it returns NotImplemented,
and the function itself is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from frameloom.capture.tensors.sized import SizedFake

# --- recurrent cells.  Source: `LSTMCell` and `GRUCell` of ATen's RNN.cpp


def _lstm_cell(x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    hidden, cell = state
    _check_cell(x, hidden, w_ih, w_hh, 4)
    _check_cell(x, cell, w_ih, w_hh, 4)
    gates = F.linear(hidden, w_hh, b_hh) + F.linear(x, w_ih, b_ih)
    enters, stays, new, leaves = gates.chunk(4, 1)
    cell = stays.sigmoid() * cell + enters.sigmoid() * new.tanh()
    return leaves.sigmoid() * cell.tanh(), cell


def _gru_cell(x: Any, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    _check_cell(x, hidden, w_ih, w_hh, 3)
    reset, keeps, new = F.linear(x, w_ih, b_ih).chunk(3, 1)
    own_reset, own_keeps, own_new = F.linear(hidden, w_hh, b_hh).chunk(3, 1)
    candidate = (new + own_new * (own_reset + reset).sigmoid()).tanh()
    return (hidden - candidate) * (own_keeps + keeps).sigmoid() + candidate


def _check_cell(x: Any, hidden: Any, w_ih: Any, w_hh: Any, gates: int) -> None:
    width = w_hh.shape[1]
    fits = x.dim() == hidden.dim() == 2 and x.shape[1] == w_ih.shape[1] and hidden.shape[1] == width
    if not fits or x.shape[0] != hidden.shape[0] or w_ih.shape[0] != gates * width:
        raise RuntimeError("sizes of input, hidden state and weights do not fit")


# --- moments, whose derivatives divide by a count


class _Moment(torch.autograd.Function):
    """A variance, or its root, that saves what eager saves and has eager's derivative. Source: `var_backward`
    and `std_backward` of torch/csrc/autograd/FunctionsManual.cpp. Where it runs op by op, it has its own
    derivative, for gradients of gradients."""

    @staticmethod
    def forward(
        context: Any, x: Any, made: tuple[Any], dims: list[int], keepdim: bool, freedom: Any, root: bool
    ) -> Any:  # fmt: skip
        context.save_for_backward(x, *made * root)
        context.given = dims, keepdim, freedom
        return made[0]

    @staticmethod
    def backward(context: Any, grad: Any) -> Any:
        dims, keepdim, freedom = context.given
        x, *root = context.saved_tensors
        for std in root:
            grad = torch.where(std == 0, 0, grad / (std * 2))
        for d in sorted(d % x.dim() for d in dims) if not keepdim and x.dim() > 1 else ():
            grad = grad.unsqueeze(d)
        return grad * 2 / freedom * (x - x.mean(dims, keepdim=True)), *[None] * 5


def _moment(root: bool, x: Any, *args: Any, **kwargs: Any) -> Any:
    given = dict(zip(("dim", "unbiased", "keepdim"), args, strict=False)) | kwargs
    if isinstance(given.get("dim"), bool):  # var(unbiased)
        given = {**kwargs, "unbiased": given["dim"]}
    dims, keepdim = given.pop("dim", None), given.pop("keepdim", False)
    correction = given.pop("correction", None)
    if "unbiased" in given:
        correction = int(given.pop("unbiased"))
    correction = 1 if correction is None else correction
    if given or not x.requires_grad or type(correction) is not int or x.is_complex():
        return NotImplemented
    dims = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
    count: Any = 1
    for d in dims:
        count = count * x.shape[d]
    if not count > correction:  # eager warns
        return NotImplemented
    freedom = count - correction
    wide = x.double() if x.device.type == "cpu" else x  # as eager's kernel computes it
    deviation = wide - wide.mean(dims, keepdim=True)
    moment = (deviation * deviation).sum(dims, keepdim=keepdim) / freedom
    if root:  # eager gives no gradient where it is 0
        positive = torch.where(moment == 0, 1.0, moment)
        moment = torch.where(moment == 0, moment.detach(), positive.sqrt())
    return _Moment.apply(x, (moment.to(x.dtype),), dims, keepdim, freedom, root)  # type: ignore[no-untyped-call]


_var, _std = partial(_moment, False), partial(_moment, True)


# --- for the recorder


def _over_sizes(function: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def record(recorder: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        result = NotImplemented
        if isinstance(x, SizedFake) and not torch.is_autocast_enabled(x.device.type):
            result = recorder.run(decomposition, (x, *args), kwargs)
        return recorder.run(function, (x, *args), kwargs) if result is NotImplemented else result

    return record


WHOLE_OVER_SIZES = {
    function: _over_sizes(function, decomposition)
    for function, decomposition in (
        (torch.lstm_cell, _lstm_cell), (torch.gru_cell, _gru_cell), (torch.var, _var), (torch.Tensor.var, _var),
        (torch.std, _std), (torch.Tensor.std, _std),
    )
}  # fmt: skip
