"""Arithmetic of complex numbers, running extremes, and ufuncs with two results.

PYTEST_DONT_REWRITE
"""

import numpy as np

from tests.programs.program import X, program

A = np.array([3.0, 1, 2, 0, 5, 4, 2], dtype=np.float32)
M = np.arange(12.0, dtype=np.float32).reshape(3, 4) - 5
C = (np.arange(4) + 1j).astype(np.complex64)
INTS = np.array([3, 1, 2, 1, 0])
SPECIAL = np.array([np.nan, -0.0, 0.0, -1, 2, np.inf, -np.inf, 0.5])


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


@program(args=given(C, A))
def complex_arithmetic(x, c, a):
    return x + 1, c + 1, c * 2, -c, 1j * c, c - c, c / 2, 2 / c, c * c, np.square(c), c + a[0], c * np.float64(2), c * np.float32(2), c + True, c * a[1:5]  # fmt: skip


@program(args=given(C))
def complex_in_place(x, c):
    c += 1
    c *= 2j
    b = c.copy()
    b /= c
    return x + 1, b, np.multiply(c, 2, out=b)


def test_complex_infinities():
    """They give the parts that NumPy's formulas give, also beside NaN."""
    from frameloom import jit

    parts = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)
    c = np.array([complex(r, i) for r in parts for i in parts])

    def call(c, d):
        return c + d, c - d, c * d, c / d, c * 2, c / (1 + 1j), 1 / c, np.square(c)

    target = jit(call, fullgraph=True)
    with np.errstate(all="ignore"):
        for shift in range(0, len(c), 5):
            for got, want in zip(
                target(c, np.roll(c, shift)), call(c, np.roll(c, shift)), strict=True
            ):
                np.testing.assert_array_equal(got.view(float), want.view(float))


@program(args=given(SPECIAL))
def steps_and_parts(x, s):
    return x + 1, np.heaviside(s, 0.5), np.heaviside(1.0, s), np.modf(s), np.nextafter(s, 0)


@program(args=given(A, INTS))
def two_results(x, a, i):
    return x + 1, np.divmod(a, 2), np.divmod(a, -2.5), np.modf(a[0]), np.divmod(i, 2)


@program(args=given(INTS))
def divisors(x, i):
    return x + 1, np.gcd(i, 6), np.gcd(i, i[::-1])


@program(args=given(M, SPECIAL, INTS))
def running(x, m, s, i):
    return x + 1, np.maximum.accumulate(m, axis=1), np.minimum.accumulate(m), np.maximum.accumulate(s), np.minimum.accumulate(s[1:]), np.maximum.accumulate(i), np.cumulative_sum(m, axis=0), np.add.accumulate(m, dtype=np.float64), np.cumulative_prod(i)  # fmt: skip
