"""`numpy.linalg`, whose Python code is interpreted, and `numpy.errstate` around captured code.

PYTEST_DONT_REWRITE
"""

import numpy as np
import torch

from tests.programs.program import X, program

S = np.array([[4.0, 1, 0], [1, 5, 1], [0, 1, 6]])
V = np.array([1.0, 2, 4])
SINGULAR = np.ones((3, 3))


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


@program(args=given(S, V))
def solved(x, s, v):
    return (
        x + 1,
        np.linalg.inv(s),
        np.linalg.solve(s, v),
        np.linalg.solve(s, s.T),
        np.linalg.inv(np.stack([s, s * 2])),
    )


@program(args=given(S.astype(np.float32)))
def singles_are_computed_as_doubles(x, s):
    return x + 1, np.linalg.inv(s), np.linalg.cholesky(s), np.linalg.eigvalsh(s)


@program(args=given(np.array([[2, 1], [1, 3]])))
def ints(x, i):
    return x + 1, np.linalg.inv(i), np.linalg.matrix_power(i, 3), np.linalg.norm(i)


@program(args=given(S, V))
def numbers(x, s, v):
    return x + 1, np.linalg.norm(s), np.linalg.norm(s, axis=1), np.linalg.norm(v, 1), np.linalg.norm(v, np.inf), np.linalg.norm(v, ord=3), np.linalg.norm(s, 2) // 1, np.linalg.matrix_rank(s), np.linalg.svd(s, compute_uv=False), np.linalg.cholesky(s)  # fmt: skip


@program(calls=[given(S, V)(), given(SINGULAR, V)(), given(S, V)()], graphs=1)
def singular_in_a_later_call(x, s, v):
    v += 1
    try:
        return x + 1, np.linalg.solve(s, v), v
    except np.linalg.LinAlgError as error:
        return x - 1, str(error), v


@program(args=given(SINGULAR, V))
def singular(x, s, v):
    v[0] = 9
    return x + 1, np.linalg.inv(s)


@program(args=given(-S))
def not_positive(x, s):
    return x + 1, np.linalg.cholesky(s)


@program(args=given(V), breaks="exception", graphs=1)
def not_square(x, v):
    return x + 1, np.linalg.inv(v)


@program(args=given(S), breaks="numpy", graphs=1)
def vectors_whose_signs_are_open(x, s):
    return x + 1, np.linalg.eigh(s)


@program(calls=[given(np.eye(n) * 2 + 1)() for n in (2, 3, 4, 5)], graphs=2)
def sizes_vary(x, s):
    return x + 1, np.linalg.inv(s) * 2


# --- errors of floats


@program(args=given(V))
def errors_that_are_ignored(x, v):
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.log(v - 1)
    return x + 1, w


@program(args=given(V))
def one_in_the_other(x, v):
    with np.errstate(all="ignore"), np.errstate(over="warn"):
        w = np.exp(v)
        with np.errstate(under="ignore"):
            w = w * 2
    return x + 1, w


@program(args=given(V), breaks="library_call context_manager print context_manager", graphs=4)
def break_inside(x, v):
    y = x + 1
    with np.errstate(all="ignore"):
        w = np.exp(v)
        print("inside")
        w = w * 2
    return y * 2, w


@program(args=given(V), breaks="library_call context_manager numpy numpy", graphs=1)
def errors_that_raise(x, v):
    y = x + 1
    with np.errstate(divide="raise"):
        try:
            w = np.log(v - 1)
        except FloatingPointError as error:
            w = str(error)
    return y, w


@program(args=given(V), breaks="library_call numpy library_call", graphs=1)
def around_a_function(x, v):
    return x + 1, np.errstate(all="ignore")(np.exp)(v)


# --- reductions that start from a number, masks of universal functions, averages


@program(args=given(V, np.array([3, 1, 2])))
def reductions_from_a_number(x, v, i):
    return x + 1, v.sum(initial=1.5), np.sum(v, initial=2), i.prod(initial=2), np.max(v, initial=9), i.min(initial=0), np.sum(v, axis=0, keepdims=np._NoValue)  # fmt: skip


@program(args=given(V, S))
def universal_functions_with_masks(x, v, s):
    np.add(v, 1, where=v > 1, out=v)
    np.multiply(s, v, out=s, where=v < 4)
    np.sqrt(v, out=s[0], where=np.array([True, False, True]))
    r = np.divide(1, v, where=[False, True, False], out=np.zeros(3))
    return x + 1, r


@program(args=given(np.array([1, 2, 3])))
def masked_result_in_another_dtype(x, i):
    return x + 1, np.add(i, 1, out=np.zeros(3), where=i > 1)


@program(args=given(V), breaks="op_error", graphs=1)
def masked_without_a_result(x, v):
    return x + 1, np.add(v, 1, where=v > 9).shape


@program(calls=[given(V)(), given(V * 0)(), given(V + 1)()], graphs=1)
def average_by_weights(x, v):
    return x + 1, np.average(v, weights=v), np.average(v)


# --- arrays without elements


@program(args=lambda: (X[:0].clone(), np.zeros((0, 2), np.float32)))
def nothing(x, a):
    b = (x + 1).numpy()
    return b, b.strides, np.tile(a, (1, 2)), a + 1, torch.from_numpy(b)


@program(args=given(S, V))
def sums_of_products(x, s, v):
    d = np.einsum("ii->i", s)
    d += 1
    return x + 1, np.einsum("ij,j->i", s, v), np.einsum("ij,j,k->ik", s, v, v, optimize=True), d, s


@program(args=given(V.astype(complex)), breaks="numpy", graphs=1)
def sums_of_complex_products(x, v):
    return x + 1, np.einsum("i,i", v, v)
