"""Ops whose kernels call ops that autocast changes, and regions without it where the caller has it: dtypes and numbers as in plain PyTorch."""

import pytest
import torch
import torch.nn.functional as F

from frameloom import jit

X = torch.linspace(-1, 1, 64).reshape(8, 8)
ROWS = torch.linspace(-1, 1, 30 * 4).reshape(30, 4)
IMAGE = torch.eye(2, 3)[None]
LSTM = torch.nn.LSTM(8, 4)
ATTENTION = torch.nn.MultiheadAttention(8, 2).eval()
ENCODER = torch.nn.TransformerEncoderLayer(8, 2, 16).eval()

PROGRAMS = {
    "distances": lambda: torch.cdist(ROWS, ROWS + 1),
    "a grid": lambda: F.affine_grid(IMAGE, [1, 1, 4, 4], align_corners=False),
    "bilinear": lambda: F.bilinear(X, X, torch.ones(2, 8, 8) / 3),
    "recurrent": lambda: LSTM(X[None])[0],
    "attention": lambda: ATTENTION(X, X, X, need_weights=False)[0],
    "an encoder": lambda: ENCODER(X[None]),
    "products": lambda: X @ X,
}


@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ops_above_others(name, inside, around):
    def fn():
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            return PROGRAMS[name]() * 2

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=around):
        want = fn()
        jitted = jit(fn)
        for _ in range(2):
            got = jitted()
            assert got.dtype is want.dtype
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
