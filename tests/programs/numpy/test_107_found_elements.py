"""Arrays of which the elements of others decide the size: masks, indices of nonzero elements, distinct elements.

PYTEST_DONT_REWRITE
"""

import numpy as np
import torch

from frameloom import jit
from tests.programs.program import X, program

V = np.array([3.0, 0, 1, 2, 2, 0], dtype=np.float32)
M = np.arange(12.0).reshape(3, 4) - 5
INTS = np.array([3, 1, 2, 3, 1])


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


def none_some_all(*arrays):
    """Calls with arrays of which no element is positive, some are, exactly one is, and all are."""
    one = [np.where(np.arange(a.size).reshape(a.shape) == 1, a + 99, -abs(a)) for a in arrays]
    kinds = [arrays, [-abs(a) - 1 for a in arrays], one, [abs(a) + 1 for a in arrays]]
    return [given(*(a.astype(b.dtype) for a, b in zip(k, arrays, strict=True))) for k in kinds]


@program(calls=none_some_all(V, M))
def masked(x, v, m):
    return x + 1, v[v > 0], m[m > 0], m[m[:, 0] > 0], m[m.sum(axis=1) > 0, 1]


@program(calls=none_some_all(V))
def computed_from_masked(x, v):
    b = v[v > 0]
    return x + 1, b * 2, b.sum(), np.sqrt(b), b + 1, -b, b.astype(np.float64)


@program(calls=none_some_all(V))
def views_of_masked(x, v):
    b = v[v > 0]
    c = b[:]
    c += 1
    return x + 1, b, c


@program(calls=none_some_all(V, M))
def masks_that_are_written(x, v, m):
    v[v > 0] = 7
    m[m > 0] = v[0]
    return x + 1, v.sum(), m.sum()


@program(calls=[given(V), *none_some_all(V)[2:]])
def places(x, v):
    (i,) = np.nonzero(v > 0)
    return x + 1, i, np.where(v > 0)[0], (v > 0).nonzero(), np.flatnonzero(v > 0), v[i]


@program(calls=[given(M), *none_some_all(M)[2:]])
def places_in_a_matrix(x, m):
    return x + 1, np.nonzero(m > 0), np.where(m > 0)


def test_no_places():
    """The columns of no places have strides, for which the call starts again as plain Python."""

    def places(v, m):
        return np.nonzero(v > 0), np.nonzero(m > 0)

    target = jit(places, fullgraph=True)
    for sign in (1, -1, 1, -1):
        given = sign * abs(V) - (sign < 0), sign * abs(M) - (sign < 0)
        got, want = target(*given), places(*given)
        for g, w in zip((*got[0], *got[1]), (*want[0], *want[1]), strict=True):
            assert g.tolist() == w.tolist() and g.strides == w.strides


@program(calls=none_some_all(M))
def rows_of_places(x, m):
    return x + 1, np.argwhere(m > 0)


@program(calls=none_some_all(V))
def chosen(x, v):
    return x + 1, np.compress(v > 0, v), np.extract(v > 0, v)


@program(calls=none_some_all(V, INTS))
def distinct(x, v, i):
    return x + 1, np.unique(v), np.unique(i)


@program(calls=[given(np.array([np.nan, 1, np.nan, 1])), given(np.array([1.0, np.nan, 0.0, -0.0]))])
def distinct_nans(x, v):
    return x + 1, np.unique(v)


@program(calls=none_some_all(V))
def sizes_of_masked(x, v):
    return x + 1, len(v[v > 0]), v[v > 0].size, v[v > 0].shape


@program(calls=none_some_all(V))
def tensor_of_masked(x, v):
    return x + 1, torch.from_numpy(v[v > 0]) + 1


@program(args=given(V), breaks="numpy", graphs=1)
def strides_of_masked(x, v):
    return x + 1, v[v > 0].strides


@program(calls=none_some_all(V), breaks="op_error", graphs=2)
def numbers_for_a_mask(x, v):
    y = x + 1
    v[v > 0] = v[v > 0] * 2
    return y * 2
