"""Arrays that are read backwards, and arrays that may not be written, of which PyTorch has neither.

PYTEST_DONT_REWRITE
"""

import numpy as np
import torch

from tests.programs.program import X, program

V = np.arange(4.0, dtype=np.float32)
M = np.arange(12.0).reshape(3, 4)


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


def backwards(*arrays):
    """Arguments that are read backwards along the first dimension; the first one also comes as it is."""
    return lambda: (X.clone(), *(a for array in arrays for a in both(array.copy())))


def both(array):
    return array, array[::-1]


def reading(array, key):
    return lambda: (X.clone(), array.copy()[key])


def frozen(*arrays):
    def make():
        copies = [a.copy() for a in arrays]
        for copy in copies:
            copy.flags.writeable = False
        return X.clone(), *copies

    return make


@program(args=given(V, M))
def flipped(x, v, m):
    return x + 1, v[::-1], np.flip(m), np.rot90(m), np.rot90(m, 2), np.fliplr(m), np.flipud(m), m[::-1, ::2], v[3:0:-2], v[::-1][::-1], v[:1][::-1]  # fmt: skip


@program(args=given(V, M))
def computed_from_flipped(x, v, m):
    b, r = v[::-1], m[::-1, ::-1]
    return x + 1, b + 1, b - v, np.sqrt(b), b.sum(), r.sum(axis=0), np.cumsum(b), b @ v, b.copy(), r.T, r.reshape(12), r.ravel(), r.astype(np.float32), np.concatenate([b, v]), np.where(b > 1, b, 0)  # fmt: skip


@program(args=given(M))
def parts_of_flipped(x, m):
    r = m[::-1]
    return x + 1, r[0], r[1:], r[:, 1], r[0, 1], r[[0, 2]], r.shape, r.strides, len(r), [row.sum() for row in r], float(r[0, 0]), r[-1, ::-1]  # fmt: skip


@program(args=given(V))
def views_see_writes(x, v):
    b = v[::-1]
    v[0] = 9
    s = b.sum()
    b[0] = 7
    b[1:] = b[:-1]
    b += v
    return x + 1, b, s, v * 2


@program(args=given(V, M))
def writes_to_flipped(x, v, m):
    r = m[::-1, ::-1]
    np.add(m, 1, out=r)
    np.multiply(r, 2, out=r, where=r > 3)
    r[0, :2] = v[:2]
    r[r > 20] = -1
    r[:, [0, 1]] = v[:2]
    r[::-1][0].fill(3)
    v[::-1].sort()
    np.copyto(m[:, ::-1], r)
    return x + 1, r


@program(args=lambda: (X.clone(), V.copy()[::-1], M.copy()[::-1, ::-1]))
def given_backwards(x, b, r):
    b += 1
    r[0] = 5
    return x + 1, b * 2, r.sum(axis=1), r, b[1:], b


@program(args=backwards(V, M), plain=True, graphs=0)
def inputs_that_share_memory(x, v, b, m, r):
    b += 1
    r[0] = 5
    return x + 1, b * 2, v + b, m


@program(args=backwards(V))
def nothing_but_the_flipped(x, m, r):
    return x + r.sum(), r[::-1]


@program(calls=[given(V), reading(V, np.s_[::-1]), reading(V, np.s_[::-1]), given(V)], graphs=2)
def direction_is_guarded(x, v):
    return x + 1, v * np.arange(4.0)


@program(
    calls=[reading(M, key) for key in (np.s_[:], np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, ::-1])],
    graphs=4,
)
def directions_of_each_dimension(x, m):
    return x + 1, m + 1, m[0]


@program(args=given(V), breaks="numpy", graphs=1)
def tensor_of_flipped(x, v):
    return x + 1, torch.from_numpy(v[::-1])


@program(args=given(V))
def flipped_tensor(x, v):
    a = x.numpy()[::-1]
    a[0] = v
    return x + 1, a


@program(args=given(V, M), breaks="", graphs=1)
def flipped_next_to_breaks(x, v, m):
    b, r = v[::-1], np.broadcast_to(v, (2, 4))
    v += 1
    return x + 1, b, r, b.strides


@program(args=given(V), breaks="print", graphs=2)
def break_between(x, v):
    b, r = v[::-1], np.broadcast_to(v, (2, 4))
    y = x + 1
    print("between")
    return y * 2, b + r, b, r


# --- arrays that may not be written


@program(args=given(V, M))
def broadcast(x, v, m):
    r = np.broadcast_to(v, (3, 4))
    v += 1
    return x + 1, r, r + m, r.sum(), r[0], r.T, r[::-1], r.copy(), np.broadcast_to(v[::-1], (2, 4))


@program(args=given(M))
def diagonals(x, m):
    d = np.diagonal(m)
    m += 1
    return x + 1, d, d * 2, m.diagonal(1), np.diag(m)


@program(args=frozen(V, M))
def given_read_only(x, v, m):
    return x + 1, v, v + 1, m[1:], m.T, m.sum(), v[::-1], m.copy()


@program(args=frozen(V), breaks="op_error", graphs=1)
def write_to_read_only(x, v):
    y = x + 1
    v[0] = 3
    return y


@program(args=given(V), breaks="op_error", graphs=1)
def write_to_broadcast(x, v):
    y = x + 1
    r = np.broadcast_to(v, (3, 4))
    r += 1
    return y


@program(calls=[given(V), frozen(V), given(V)], breaks="op_error")
def access_is_guarded(x, v):
    v += 1
    return x + 1, v


@program(calls=[frozen(V), given(V), frozen(V)], graphs=2)
def access_of_views_is_guarded(x, v):
    return x + 1, v[1:]
