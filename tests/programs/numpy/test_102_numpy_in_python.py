"""NumPy's functions that NumPy has in Python, methods of its universal functions, and questions about dtypes.

PYTEST_DONT_REWRITE
"""

import numpy as np
import torch

from frameloom import jit
from tests.programs.program import X, program

A = np.arange(4.0, dtype=np.float32)
M = np.arange(12.0, dtype=np.float32).reshape(3, 4) - 5
S = np.array([[4.0, 1.0], [2.0, 3.0]])
INTS = np.array([3, 1, 2], dtype=np.int32)


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


@program(args=given(A, M, S))
def interpreted(x, a, m, s):
    return x + 1, np.linalg.norm(m), np.linalg.norm(m, axis=1), np.linalg.matrix_power(s, 3), np.gradient(a), np.trapezoid(a), np.append(a, a), np.resize(a, (2, 3)), np.polyval([1, 2], a), np.sinc(a), np.unwrap(a), np.linalg.det(s).round(6)  # fmt: skip


@program(args=given(A, M))
def methods_of_universal_functions(x, a, m):
    return x + 1, np.add.reduce(m), np.add.reduce(m, axis=1, keepdims=True), np.maximum.reduce(m, axis=1), np.multiply.outer(a, a), np.add.accumulate(a)  # fmt: skip


@program(args=given(A, INTS))
def dtypes(x, a, i):
    return np.result_type(a, np.float64), np.can_cast(a.dtype, i.dtype), np.issubdtype(a.dtype, np.floating), np.dtype("float32"), np.dtype(np.float32).itemsize, a.astype("f8"), a.astype("<i2"), a.astype(np.dtype("float16")), i.astype(np.int64, copy=False), a.astype(a.dtype, copy=False) is a  # fmt: skip


@program(args=given(INTS))
def shifts(x, i):
    return x + 1, i << 1, i >> 1, np.left_shift(i, 2)


@program(args=given(INTS), breaks="numpy", graphs=1)
def shifts_by_an_array(x, i):
    return x + 1, i << i


@program(args=given(M))
def orders(x, m):
    return x + 1, m.reshape(4, 3, order="F"), m.flatten("F"), m.ravel("F"), m.copy("F"), np.array(m, dtype=np.float64, order="F")  # fmt: skip


@program(args=given(M, INTS))
def sorted_arrays(x, m, i):
    m.sort()
    return x + 1, m, np.sort(i), np.argsort(i, kind="stable"), np.take_along_axis(m, np.argsort(m, axis=1, kind="stable"), 1)  # fmt: skip


@program(args=given(A), breaks="numpy", graphs=1)
def order_of_equal_elements(x, a):
    return x + 1, np.argsort(a)


@program(args=given(A, M))
def copied_into(x, a, m):
    np.copyto(m, a)
    np.copyto(a, 1, where=a > 1)
    np.add(a, 1, a)
    return x + 1, m.sum()


@program(args=given(A))
def numbers_become_tensors(x, a):
    return torch.as_tensor(a[1]) + x, torch.asarray(a) * 2, torch.tensor(a[0])


@program(args=given(M), breaks="exception", graphs=1)
def errors_of_interpreted_functions(x, m):
    y = x + 1
    return y, np.linalg.det(m)


def test_calls_with_classes_that_have_methods_of_their_own():
    """NumPy calls their `__array_function__`."""

    class Own:
        def __array_function__(self, fn, types, args, kwargs):
            return fn.__name__

    def f(x, a, own):
        return x + 1, np.append(a, own), np.gradient(own)

    assert jit(f)(X, A, Own())[1:] == f(X, A, Own())[1:] == ("append", "gradient")
