"""`torch.lstm_cell` and `torch.gru_cell` where the batch varies: PyTorch's C++ code of these asks for plain sizes.

Said again here, step by step.  Source: `LSTMCell` and `GRUCell` of ATen's RNN.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from frameloom.capture.sized import SizedFake


def lstm(x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    hidden, cell = state
    _check(x, hidden, w_ih, w_hh, 4)
    _check(x, cell, w_ih, w_hh, 4)
    gates = F.linear(hidden, w_hh, b_hh) + F.linear(x, w_ih, b_ih)
    enters, stays, new, leaves = gates.chunk(4, 1)
    cell = stays.sigmoid() * cell + enters.sigmoid() * new.tanh()
    return leaves.sigmoid() * cell.tanh(), cell


def gru(x: Any, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    _check(x, hidden, w_ih, w_hh, 3)
    reset, keeps, new = F.linear(x, w_ih, b_ih).chunk(3, 1)
    own_reset, own_keeps, own_new = F.linear(hidden, w_hh, b_hh).chunk(3, 1)
    candidate = (new + own_new * (own_reset + reset).sigmoid()).tanh()
    return (hidden - candidate) * (own_keeps + keeps).sigmoid() + candidate


def _check(x: Any, hidden: Any, w_ih: Any, w_hh: Any, gates: int) -> None:
    width = w_hh.shape[1]
    fits = x.dim() == hidden.dim() == 2 and x.shape[1] == w_ih.shape[1] and hidden.shape[1] == width
    if not fits or x.shape[0] != hidden.shape[0] or w_ih.shape[0] != gates * width:
        raise RuntimeError("sizes of input, hidden state and weights do not fit")


def _over_sizes(function: Any, said_again: Callable[..., Any]) -> Callable[..., Any]:
    """For the recorder: one or the other."""

    def record(recorder: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        again = isinstance(x, SizedFake) and not torch.is_autocast_enabled(x.device.type)
        return recorder.run(said_again if again else function, (x, *args), kwargs)

    return record


# For graphs of which sizes vary.
WHOLE_OVER_SIZES = {
    torch.lstm_cell: _over_sizes(torch.lstm_cell, lstm),
    torch.gru_cell: _over_sizes(torch.gru_cell, gru),
}
