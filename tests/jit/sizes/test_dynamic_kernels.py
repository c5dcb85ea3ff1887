"""The CPU's kernels where sizes are known at run time only: rows that end within a vector, pieces, blocks, and threads."""

import pytest
import torch

import frameloom
from frameloom import jit

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)  # fmt: skip


def data(*shape, dtype=torch.float32):
    if dtype.is_floating_point:
        return torch.randn(*shape).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype)


def compare(fn, cases, graphs=1):
    """Calls for all arguments with one entry."""
    frameloom.reset()
    jitted = jit(fn, dynamic=True)
    for args in cases:
        want = fn(*args)
        torch.testing.assert_close(jitted(*args), want, rtol=2e-5, atol=2e-5)
    assert frameloom.stats()["graphs"] == graphs


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_end_within_a_vector(dtype):
    lengths = (5, 16, 33, 64, 100, 2, 7, 8, 15, 31, 63, 65, 129)
    compare(lambda x, y: torch.where(x > y, x, y), [(data(3, n, dtype=dtype), data(n, dtype=dtype)) for n in lengths])  # fmt: skip
    compare(lambda x: (x + x)[:, :-1] == x[:, 1:], [(data(3, n, dtype=dtype),) for n in lengths])


def test_transposed_rows_end_within_a_vector():
    shapes = [(20, 33), (16, 16), (100, 37), (17, 64), (300, 5), (7, 9), (2, 40), (70, 300)]
    compare(lambda a, b: a.t() + b, [(data(n, m), data(m, n)) for n, m in shapes])


def test_rotary_embedding():
    def fn(q, c, s):
        return q * c + torch.cat((-q[..., 16:], q[..., :16]), -1) * s

    # In the last ones there is no second half: empty parts lie otherwise, and have a graph of their own.
    shapes = [(2, 40, 32), (3, 300, 48), (8, 257, 33), (2, 5, 20), (3, 9, 16), (2, 7, 16)]
    compare(fn, [(data(2, h, t, d), data(t, d), data(t, d)) for h, t, d in shapes], 2)


def test_pieces_of_rows():
    def fn(x, y):
        return torch.cat((x * 2, y, x + 1), 1).relu()

    shapes = [(4, 20, 30), (9, 17, 8), (40, 64, 64), (5, 3, 100)]
    compare(fn, [(data(n, a), data(n, b)) for n, a, b in shapes])


def test_blocks_of_what_is_read_again():
    shapes = [(8, 400, 64), (3, 401, 64), (2, 3, 64), (9, 1000, 64), (4, 33, 64)]
    compare(lambda x, y: x * y + 1, [(data(h, t, d), data(t, d)) for h, t, d in shapes])
    wide = [(8, 400, 64), (3, 401, 65), (2, 3, 20), (5, 1000, 61)]
    compare(lambda x, y: x * y + 1, [(data(h, t, d), data(t, d)) for h, t, d in wide])
    compare(lambda x, y: x[:, ::2] * y, [(data(h, 2 * t, d), data(t, d)) for h, t, d in wide])


@pytest.mark.parametrize("threads", (1, 2, 3))
def test_threads_share_what_is_large(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        sizes = (10, 30_000, 500_000, 4097, 40_960, 1)
        compare(lambda x: torch.sin(x) * 2 + 1, [(data(n),) for n in sizes[:-1]])
        shapes = [(10, 20), (700, 900), (3, 20_000), (20_000, 3), (2, 2)]
        compare(lambda x: torch.softmax(x, -1), [(data(n, m),) for n, m in shapes])
        compare(lambda x: x / x.sum(0, keepdim=True).cosh(), [(data(n, m),) for n, m in shapes])
        four = [(3, 4, 5, 6), (20, 30, 40, 50), (2, 300, 7, 90)]
        compare(lambda x, y: x.transpose(1, 2).exp() + y, [(data(*s), data(s[0], s[2], s[1], s[3])) for s in four])  # fmt: skip
    finally:
        torch.set_num_threads(before)
