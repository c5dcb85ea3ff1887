"""Pieces whose size depends on a number, and comes to 1: they are repeated then."""

import pytest
import torch

import frameloom
from tests.fuzz.interpret import interpreted

PIECES = {
    "to the end": lambda x, z, n: x[n:],
    "to another's end": lambda x, z, n: x[n : z.numel()],
    "to its own end": lambda x, z, n: x[n : x.shape[0]],
    "from the end": lambda x, z, n: x[n - x.shape[0] :],
    "narrow": lambda x, z, n: x.narrow(0, n, x.shape[0] - n),
    "of a result": lambda x, z, n: (x * 2)[n:],
    "halves": lambda x, z, n: x[(n + n) // 2 :],
}
USES = {
    "sum": lambda z, piece: z + piece,
    "written": lambda z, piece: (z * 1).add_(piece),
    "where": lambda z, piece: torch.where(z > 1, z, piece),
    "expand": lambda z, piece: piece.expand(z.shape[0]) * 1,
    "product": lambda z, piece: (z * piece).sum(0),
}


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_of_size_one_is_repeated(piece, use, dynamic):
    """Nothing is read behind the end of it, which another form of its size would say."""

    def fn(x, z, n):
        return USES[use](z, PIECES[piece](x, z, n))

    with interpreted():
        jitted = frameloom.jit(fn, dynamic=dynamic)
        for size, n in ((5, 0), (4, 0), (3, 2), (3, 2), (4, 3), (3, 0)):
            x, z = torch.arange(float(size)), torch.arange(float(size)) + 1
            torch.testing.assert_close(jitted(x, z, n), fn(x, z, n))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n, m: (x[m:] * 1).copy_(x[n:]),
        lambda x, n, m: (x[m:] * 1).copy_(x.topk(n, 0)[0]),
        lambda x, n, m: (x[max(n, m) - 1 :] * 1).copy_(x[n : x.shape[0]]),
        lambda x, n, m: x[n:] * 2 if n + x.shape[0] == m else x,
    ],
)
def test_sizes_that_depend_on_a_number_that_no_op_is_given(fn):
    """Two sizes turn out to be equal, and the one of them that is known by other numbers is left."""
    for calls in (
        [(-1, 2, 3)],
        [(-1, -1, 4), (2, 2, 3)],
        [(3, -1, 4)],
        [(2, 3, 4)],
        [(-1, 2, 3), (-1, 3, 4)],
    ):
        with interpreted():
            jitted = frameloom.jit(fn, dynamic=True)
            for n, m, size in calls:
                x = torch.arange(float(size))
                try:
                    wanted = fn(x, n, m)
                except RuntimeError:
                    continue
                torch.testing.assert_close(jitted(x, n, m), wanted)
