"""Arrays whose elements are the same in every call: NumPy's answers are asked with these elements.

PYTEST_DONT_REWRITE
"""

import numpy as np

from tests.programs.program import X, program

A = np.array([3.0, 1, 2, 0, 5, 4, 2], dtype=np.float32)
M = np.arange(12.0, dtype=np.float32).reshape(3, 4) - 5
W = np.array([0.5, 1.5, 2.5, 3.5])


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


@program(args=given(M))
def constant_masks(x, m):
    i = np.array([True, False, True])
    return x + 1, m[i], m[[True, False, True]], m[i, 1], m[:, [0, 2]], np.nonzero(i)


@program()
def indices_of_parts(x):
    return x + 1, np.diag_indices(3), np.tril_indices(3), np.triu_indices(4), np.triu_indices(2, 5)


@program(args=given(A))
def constants_that_decide_sizes(x, a):
    return x + 1, np.repeat(a, np.array([1, 2, 0, 1, 1, 1, 3])), np.split(a, np.array([2, 3]))


@program(args=given(A))
def constant_that_is_written_first(x, a):
    """Its elements at the time count."""
    i = np.array([1, 2, 0])
    i[1] = 0
    mask = i > 0
    part = i[:2]
    part[0] = 0
    return x + 1, a[:3][mask], a[:3][i > 0], a[i]


@program(args=given(A))
def mask_that_the_call_writes(x, a):
    """Its elements are not constant."""
    i = np.array([1, 2, 0])
    i[1] = a[0]
    return x + 1, a[:3][i > 1], i


@program(args=given(M, W))
def weighted_averages(x, m, w):
    return x + 1, np.average(m), np.average(m, axis=1, weights=w), np.average(m, axis=1, weights=w, returned=True), np.average(m, axis=0, weights=[1, 2, 3])  # fmt: skip


@program(args=given(M))
def covariances(x, m):
    return x + 1, np.cov(m), np.cov(m, rowvar=False, bias=True), np.cov(m, m), np.cov(m[0], ddof=0), np.corrcoef(m)  # fmt: skip


@program(breaks="op_error")
def broadcast_constants(x):
    b = np.broadcast_to([1, 2], (3, 2))
    try:
        b[0] = 3
    except ValueError:
        x = x * 2
    return x + 1, b, np.broadcast_to(np.float32(2), (3,)), b * 2


@program(args=given(A))
def arrays_asked_for(x, a):
    """`out=...` asks for an array without dimensions in place of a number."""
    return x + 1, np.floor(a, out=...), np.add(a[0], 1, out=...), np.add(a.sum(), a[1], out=...)


@program(args=given(M))
def clipped_in_place(x, m):
    r = np.clip(m, -1, 1, out=m)
    return x + 1, r is m
