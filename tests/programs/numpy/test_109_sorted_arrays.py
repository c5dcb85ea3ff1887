"""Functions of NumPy that sort in part, search in sorted arrays, choose between arrays, and count distinct elements.

PYTEST_DONT_REWRITE
"""

import numpy as np
import pytest
import torch

from frameloom import jit
from tests.programs.program import X, program

A = np.array([3.0, 1, 2, 0, 5, 4, 2], dtype=np.float32)
D = np.array([0.5, 1.5, 2.5, 3.5])
M = np.arange(12.0, dtype=np.float32).reshape(3, 4) - 5
INTS = np.array([3, 1, 2, 1, 0])
NANS = np.array([1, np.nan, 3, 2, -1, 0.5, 9])
ENDS = np.array([1, 2, np.inf, np.nan, np.nan])
TABLE = np.array([[1, 2, 3, 4, 5], [9, 8, 7, 6, 5], [0, 0, 1, 1, 2], [7, 7, 7, 7, 7]])


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


@program(args=given(A, M))
def medians(x, a, m):
    return x + 1, np.median(a), np.median(m, axis=1), np.median(m, axis=0, keepdims=True), np.median(m), np.median(m.T, axis=(0, 1))  # fmt: skip


@program(args=given(A, M))
def quantiles(x, a, m):
    return x + 1, np.quantile(a, 0.3), np.percentile(m, [10, 50], axis=1), np.quantile(m, [0.1, 0.9], axis=1, keepdims=True), np.percentile(a, 30)  # fmt: skip


@program(args=given(A, INTS))
def ways_to_choose_a_quantile(x, a, i):
    return x + 1, [np.quantile(a, 0.3, method=m) for m in ("lower", "higher", "nearest", "midpoint", "hazen", "inverted_cdf")], np.quantile(i, 0.7)  # fmt: skip


@program(args=given(A.astype(np.float16), INTS))
def quantiles_of_other_dtypes(x, h, i):
    return x + 1, np.median(h), np.quantile(h, 0.3), np.percentile(h, [1, 2]), np.median(i), np.percentile(i, [1, 50, 99])  # fmt: skip


@program(calls=[given(A), given(A[:3]), given(A[:6]), given(A[:5])], graphs=4)
def medians_of_other_sizes(x, a):
    return x + 1, np.median(a), np.sort(a)


@program(calls=[given(NANS[:5]), given(NANS[2:]), given(ENDS)])
def median_of_nan(x, a):
    return x + 1, np.median(a[:5], keepdims=True), np.median(a[None, :5], axis=0)


@program(args=given(A), breaks="exception", graphs=1)
def quantile_out_of_range(x, a):
    return x + 1, np.quantile(a, 1.5)


@program(args=given(A), breaks="numpy", graphs=1)
def partition_of_the_program(x, a):
    """The order of elements beside the asked one is that of NumPy's algorithm."""
    y = x + 1
    return y * 2, np.partition(a, 2)


@program(args=given(A, D))
def places(x, a, d):
    return x + 1, np.searchsorted(d, a), np.searchsorted(d, a, side="right"), d.searchsorted(1.5), np.searchsorted(d, [2, 9]), np.searchsorted(a[:0], d)  # fmt: skip


@program(args=given(NANS, ENDS, INTS))
def places_of_nan(x, a, e, i):
    return x + 1, np.searchsorted(e, a), np.searchsorted(e, a, side="right"), np.searchsorted(e, [np.nan, np.inf, 1, 0]), np.searchsorted(e, np.nan), np.searchsorted(e, i)  # fmt: skip


@program(args=given(A))
def bins_that_are_constant(x, a):
    return x + 1, np.digitize(a, [1, 2, 3]), np.digitize(a, np.array([3.0, 2, 1]), right=True)


@program(args=given(A, D), breaks="numpy", graphs=1)
def bins_that_are_not(x, a, d):
    """NumPy looks whether they rise or fall."""
    y = x + 1
    return y * 2, np.digitize(a, d)


@program(args=given(NANS, np.arange(4.0), np.array([1, np.inf, 2, -np.inf]), D))
def between_points(x, a, at, v, d):
    return x + 1, np.interp(a, at, v), np.interp(a, at, d, left=-1, right=7), np.interp(0.3, at, d), np.interp(a, [0, 1, 2], [3, 4, 5.0]), np.interp(a, d, d[::-1])  # fmt: skip


@program(args=given(A, A - 1))
def among_others(x, a, b):
    return (
        x + 1,
        np.isin(a, [1, 2]),
        np.isin(a, b, invert=True),
        np.isin(a, np.array([1, 2])),
        np.union1d(a, b),
    )


@program(args=given(A, INTS, TABLE))
def chosen_by_numbers(x, a, i, table):
    return x + 1, np.choose(i, table), np.choose(i, [10, 20, 30, 40]), np.choose(i - 2, [1, 2.5], mode="wrap"), np.choose(i, [i, i * 2], mode="clip"), i.choose(table), np.choose(a > 2, [a, 0])  # fmt: skip


def test_number_out_of_range():
    def choose(x, i):
        return x + 1, np.choose(i, [i, i * 2, i * 3, i * 4])

    target = jit(choose, fullgraph=True)
    for numbers in (INTS, INTS[::-1].copy(), INTS):
        assert target(X, numbers)[1].tolist() == choose(X, numbers)[1].tolist()
    for wrong in (INTS + 1, INTS - 1):
        with pytest.raises(ValueError, match="invalid entry in choice array"):
            target(X, wrong)


@program(args=given(A))
def chosen_by_conditions(x, a):
    return x + 1, np.select([a > 3, a < 1], [a, a * 2], default=1), np.select([a > 3], [a.astype(int)], 2.5), np.select([a[:1] > 3], [a])  # fmt: skip


@program(args=given(A, INTS))
def written_by_masks(x, a, i):
    np.putmask(a, a > 1, 7)
    np.putmask(a, a < 1, a * 2 - 3)
    np.putmask(i, i > 1, 2.7)
    return x + 1


@program(calls=[given(INTS), given(INTS + 1), given(INTS * 0), given(np.arange(5))])
def distinct_elements(x, i):
    return x + 1, np.unique(i, return_counts=True), np.unique(i, return_index=True), np.unique(i, return_inverse=True), np.unique(i, True, True, True)  # fmt: skip


@program(args=given(np.array([1, np.nan, 3, np.nan, 1]), TABLE))
def distinct_nan_and_matrices(x, a, m):
    return x + 1, np.unique(a, return_counts=True), np.unique(a, return_inverse=True), np.unique(a, return_index=True, equal_nan=False), np.unique(m, return_inverse=True), np.unique_counts(m).counts  # fmt: skip


def test_compiled():
    def call(x, a, d, i):
        return np.median(a), np.median(d), np.interp(a, d, d * 2), np.searchsorted(d, a), np.unique(i, return_counts=True), torch.from_numpy(a) + x[0, 0]  # fmt: skip

    target = jit(call, fullgraph=True)
    for given in ((A, D, INTS), (A + 1, D * 2, INTS + 1)):
        for got, want in zip(target(X, *given), call(X, *given), strict=True):
            for g, w in zip(np.atleast_1d(got), np.atleast_1d(want), strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-6)
