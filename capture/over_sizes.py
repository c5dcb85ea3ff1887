"""Functions of PyTorch whose C++ code asks for plain sizes, said again for tensors of which sizes vary.

Each does what the function does, step by step; where it would not, it returns NotImplemented, and the function is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from frameloom.capture.sized import SizedFake

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


def _var(x: Any, *args: Any, **kwargs: Any) -> Any:
    found = _wide_var(x, *args, **kwargs)
    return found if found is NotImplemented else found.to(x.dtype)


def _wide_var(x: Any, *args: Any, **kwargs: Any) -> Any:
    """In doubles on the CPU, as eager's kernel computes it."""
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
    # Eager saves the tensor itself; this does, too, and changes nothing.
    same = F.leaky_relu(x, 1.0)
    if x.device.type == "cpu":
        x, same = x.double(), same.double()
    deviation = x - same.mean(dims, keepdim=True)
    return (deviation * deviation).sum(dims, keepdim=keepdim) / (count - correction)


def _std(x: Any, *args: Any, **kwargs: Any) -> Any:
    found = _wide_var(x, *args, **kwargs)
    if found is NotImplemented:
        return found
    # Where it is 0, eager gives no gradient; and it saves its result, as `relu` does, which changes nothing here.
    root = torch.where(found == 0, 1.0, found).sqrt()
    return torch.where(found == 0, found.detach(), root).to(x.dtype).relu()


# --- for the recorder


def _over_sizes(function: Any, said_again: Callable[..., Any]) -> Callable[..., Any]:
    def record(recorder: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        found = NotImplemented
        if isinstance(x, SizedFake) and not torch.is_autocast_enabled(x.device.type):
            found = recorder.run(said_again, (x, *args), kwargs)
        return recorder.run(function, (x, *args), kwargs) if found is NotImplemented else found

    return record


WHOLE_OVER_SIZES = {
    function: _over_sizes(function, said_again)
    for function, said_again in (
        (torch.lstm_cell, _lstm_cell), (torch.gru_cell, _gru_cell), (torch.var, _var), (torch.Tensor.var, _var),
        (torch.std, _std), (torch.Tensor.std, _std),
    )
}  # fmt: skip
