"""NumPy's arrays: they are arguments and results of graphs, and share memory with tensors as in plain Python.

PYTEST_DONT_REWRITE
"""

import numpy as np
import pytest
import torch

from frameloom import jit
from tests.capture.capturing import jitted
from tests.programs.changing import changes
from tests.programs.program import X, program

A = np.arange(4.0, dtype=np.float32)
M = np.arange(12.0, dtype=np.float32).reshape(3, 4) - 5
INTS = np.array([3, 1, 2], dtype=np.int32)


def given(*arrays):
    return lambda: (X.clone(), *(a.copy(order="K") for a in arrays))


# --- between tensors and arrays


@program(args=given(A))
def array_becomes_a_tensor(x, a):
    return x + torch.from_numpy(a)


@program()
def tensor_to_numpy_and_back(x):
    a = (x + 1).numpy()
    return torch.from_numpy(a * 2) * 2


@program()
def function_in_between(x):
    y = x + 1
    a = np.sqrt(np.abs(y.numpy()))
    return a, torch.from_numpy(a)[0] + y


@program(args=given(A))
def copies_and_conversions(x, a):
    return torch.as_tensor(a) + x, torch.tensor(a) + x, torch.tensor(a, dtype=torch.float64), torch.as_tensor(a, dtype=torch.int64), torch.tensor(a.T)  # fmt: skip


@program(args=given(M))
def writes_through_the_array(x, m):
    x.numpy()[0] = 3
    m[1:] = x[1:].numpy()
    m += 1
    return x * 2, m.sum()


@program(args=given(A))
def writes_through_the_tensor(x, a):
    torch.from_numpy(a).add_(1)
    return x + 1, a + 1


@program(args=given(A))
def tensor_of_the_array_sees_later_writes(x, a):
    t = torch.from_numpy(a)
    a[0] = 7
    return t + 1, a[:2]


@program()
def result_shares_the_memory_of_a_result(x):
    y = x + 1
    a = y.numpy()
    a[0] = 5
    return y, a.copy(), y.sum()


@program(breaks="numpy", graphs=1)
def dtype_that_numpy_lacks(x):
    return (x + 1).bfloat16().numpy()


@program()
def arrays_of_tensors(x):
    y = x + 1
    a = np.asarray(y)
    a[0] = 7
    b = np.asanyarray(x[:, 1])
    b += 1
    return y * 2, a, b, np.asarray(y[0, 0]), np.asarray(a) is a, x.sum()


@program(breaks="numpy", graphs=2)
def array_of_a_tensor_as_another_dtype(x):
    y = x + 1
    return np.asarray(y, dtype=np.float64), y * 2


# --- what an array says of itself


@program(args=given(M))
def properties(x, m):
    t = m.T
    return x + 1, m.shape, m.ndim, m.size, m.dtype, m.strides, m.itemsize, m.nbytes, len(m), t.shape, t.strides, isinstance(m, np.ndarray), type(m)  # fmt: skip


@program(args=given(M, INTS))
def dtypes_decide(x, m, i):
    if m.dtype == np.float32 and i.dtype != np.float32 and m.dtype in (np.float32, np.float64):
        return x * 2, m.dtype.name, m.dtype.kind, i.dtype.itemsize
    return x


# --- functions, methods and operators


@program(args=given(A))
def operators_with_numbers(x, a):
    return x + 1, a + 1, 2 - a, a * 2.5, a / 2, a**2, a**1.5, 2**a, a // 2, a % 2, -a, +a, abs(a), a > 1, 1 <= a, a == 1, a != 2, a @ a  # fmt: skip


@program(args=given(INTS))
def operators_of_ints(x, i):
    return x + 1, i + 1, i * 2.5, i / 2, i // 2, i % 2, i**2, i & 1, i | 4, i ^ 1, ~i, i + np.int64(1), i * np.float32(2), i + np.int8(1)  # fmt: skip


@program(args=given(A))
def in_place_operators(x, a):
    b = a
    b += 1
    b *= 2.5
    a -= a[::2].sum()
    a /= 2
    return x + 1, b is a


@program(args=given(A, M))
def universal_functions(x, a, m):
    return x + 1, np.exp(a), np.log1p(a), np.sin(m), np.maximum(a, m), np.arctan2(a, m), np.hypot(m, 1), np.isnan(m), np.sign(m), np.floor(m), np.logical_and(a, m), np.add(a, m, dtype=np.float64)  # fmt: skip


@program(args=given(A, M))
def results_in_given_arrays(x, a, m):
    np.add(m, a, out=m)
    r = np.multiply(a, 2, out=a)
    return x + 1, r is a


@program(args=given(M, INTS))
def reductions(x, m, i):
    return x + 1, m.sum(), m.sum(0), m.mean(axis=1, keepdims=True), np.max(m), m.argmax(), np.std(m, axis=0), m.var(ddof=1), i.sum(), i.mean(), np.prod(i), (m > 0).any(), m.all(axis=1), np.cumsum(m, axis=1), m.sum(dtype=np.float64)  # fmt: skip


@program(args=given(M))
def indices(x, m):
    return x + 1, m[0], m[0, 1], m[1:, ::2], m[-1], m[..., None], m[[0, 2]], m[:, 1], m[1:2], m[()]


@program(args=given(M))
def layouts(x, m):
    t = m.T
    return x + 1, t, t.reshape(12), m.reshape(4, -1), t.ravel(), m.ravel(), t.copy(), t + 1, np.transpose(m), m.swapaxes(0, 1), m[None].squeeze(), t.flatten(), np.expand_dims(m, 1), np.ascontiguousarray(t)  # fmt: skip


@program(args=given(A, M))
def joined(x, a, m):
    return x + 1, np.concatenate([m, a[None]]), np.stack([a, a], axis=1), np.vstack((a, m)), np.hstack([a, a]), np.where(a > 1, a, 0), np.where(m > 0, 1.5, m), np.clip(m, -1, 2), m.clip(0, None), np.dot(m, a), np.outer(a, a), np.matmul(m, m.T), np.repeat(a, 2), np.tile(a, 2), np.roll(a, 1), np.split(a, 2)  # fmt: skip


@program(args=given(A))
def made_anew(x, a):
    return x + 1, np.zeros(3), np.ones((2, 3), dtype=np.float32), np.full(2, 7), np.arange(5), np.linspace(0, 1, 5), np.eye(2), np.zeros_like(a), np.ones_like(a), np.array([1.0, 2.0]), np.zeros((40, 40)), np.asarray([1, 2])  # fmt: skip


@program(args=given(A))
def new_arrays_are_new_in_each_call(x, a):
    b = np.zeros(4, dtype=np.float32)
    b += a
    return x + torch.from_numpy(b), b


@program(args=given(A, INTS))
def casts(x, a, i):
    return x + 1, a.astype(np.float64), a.astype("int64"), i.astype(float), i.astype(np.float32), a.astype(bool), a.view()  # fmt: skip


@program(args=given(A))
def numbers_of_arrays(x, a):
    s = a[1]
    a[1] = 9
    return x + 1, s, s + 1, s * a, type(s), s.dtype, a.sum() / 2


@program(args=given(A))
def loops_over_arrays(x, a):
    total = a[0]
    for item in a:
        total = total + item
    return x + 1, total


@program(args=given(A, INTS))
def numbers_and_tensors(x, a, i):
    return (
        x * a[1],
        a[1] * x,
        x + a.sum(),
        x / i[0],
        x - i.sum(),
        x + float(a.max()),
        a.min().item(),
    )


@program(args=given(A, INTS))
def masks_and_indices_that_are_arrays(x, a, i):
    b = a.copy()
    a[a > 1] = 0
    i[1:] = 7
    a[0] = i[0]
    return x + 1, b[[-1, 0]], np.take(b, [-1, 0]), b[np.array([1, 1])]


@program(args=lambda: (X, A.copy(), np.array([1, 9])))
def index_out_of_range(x, a, i):
    return x + 1, a[i]


@program(args=given(A))
def arrays_of_numbers(x, a):
    return (
        x + 1,
        np.array([a[0], a[1], 2]),
        np.array([a, a]),
        np.array([[a[0]], [1.5]]),
        np.asarray(a),
    )


@program(args=given(A))
def halves(x, a):
    h = a.astype(np.float16)
    return x + 1, h * 2.1, h.sum(), h + a, np.sqrt(h), np.float32(1.5) * h, h + np.float64(1)


@program(args=given(A))
def limits_of_dtypes(x, a):
    return (
        x + float(np.finfo(np.float32).eps),
        np.finfo(a.dtype).max,
        np.iinfo(np.int32).min,
        np.finfo("float64").bits,
    )


@program(args=given(M))
def views_of_views_that_are_written(x, m):
    r = m.reshape(2, 6).ravel()
    r[0] = 9
    m.T[1] += 1
    m[1:].fill(3)
    x.T.numpy()[0, 0] = 9
    return x + 1, r, m.sum()


# --- what is left to NumPy


@program(args=given(INTS), breaks="warning", graphs=2)
def division_by_zero(x, i):
    y = x + 1
    j = i // 0
    return y * 2, j


@program(args=given(A), breaks="numpy", graphs=1)
def torch_function_of_an_array(x, a):
    return x + 1, torch.sum(a)


@program(args=given(A), breaks="exception", graphs=1)
def array_as_a_key(x, a):
    return x + 1, {a: 1}


@program(args=given(A))
def shape_from_an_element(x, a):
    return x + 1, np.repeat(a, a.astype(int))


def test_errors_of_floats_that_raise():
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        jit(lambda x, a: (x + 1, 1 / a))(X, np.zeros(3))


@program(args=given(A))
def shapes_that_depend_on_data(x, a):
    y = x + 1
    b = a[a > 1]
    return y * 2, b


@program(args=given(INTS), breaks="numpy", graphs=2)
def division_of_ints_by_an_array(x, i):
    y = x + 1
    j = 6 // i
    return y * 2, j


@program(args=given(A), breaks="numpy", graphs=1)
def tensor_and_array(x, a):
    return (x + 1) * a


@program(args=lambda: (X, np.arange(4.0)[::-1]))
def backwards(x, a):
    return x + 1, a + 1


@program(args=lambda: (X, np.broadcast_to(np.ones(2), (2, 2))))
def read_only(x, a):
    return x + 1, a + 1


@program(args=given(A))
def flipped(x, a):
    return x + 1, np.flip(a)


@program(args=given(A), breaks="op_error", graphs=1)
def shapes_that_do_not_match(x, a):
    y = x + 1
    return y, a + np.ones(3)


@program(args=given(A), breaks="unknown_call unknown_call", graphs=1)
def draws(x, a):
    np.random.seed(0)
    return x + 1, np.random.rand(2)


# --- several calls


@program(
    calls=[(X, A), (X, A + 1), (X, A.astype(np.float64)), (X, M[:, 0]), (X, A.astype(np.float64))],
    graphs=3,
)
def dtypes_and_strides_are_guarded(x, a):
    return x[:1, : len(a)] + torch.from_numpy(a)[: x.shape[1]].sum(), a * 2


def overlapping(*pairs):
    base = np.arange(6.0, dtype=np.float32)
    return [(X, base[s], base[o]) for s, o in pairs]


def parts(first, second):
    base = np.arange(6.0, dtype=np.float32)
    return X, base[first], base[second]


def test_array_next_to_gradients():
    def f(x, w, a):
        return (torch.from_numpy(a) * w).sum() + x.numpy().sum() * 1

    grads = []
    for call in (f, jit(f, fullgraph=True)):
        w, a = X[0].clone().requires_grad_(), A.copy()
        call(X, w, a).backward()
        grads.append(w.grad)
    assert torch.equal(*grads)


def test_tensor_that_requires_gradients():
    w = X.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        jit(lambda w: (w * 2).numpy())(w)
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        jit(lambda w: np.asarray(w * 2))(w)


def test_write_after_a_tensor_is_saved():
    """Autograd counts no writes of NumPy, so that the backward pass reads the new numbers."""

    def f(w, a):
        y = (torch.from_numpy(a) * w).sum()
        a += 1
        return y

    grads = []
    for call in (f, jit(f)):
        w, a = X[0].clone().requires_grad_(), A.copy()
        call(w, a).backward()
        grads.append(w.grad)
    assert torch.equal(*grads)


def test_array_of_text():
    words = np.array(["a", "b"])
    target, seen = jitted(lambda x, a: (x + 1, a[0]))
    assert target(X, words)[1] == "a"
    assert [b.kind for b in seen.breaks] == ["numpy"]


def test_arrays_that_share_memory():
    def write(x, a, b):
        a += 1
        return x + 1, a * b

    target, seen = jitted(write)
    for first, second in (
        (slice(0, 3), slice(3, 6)),
        (slice(0, 3), slice(2, 5)),
        (slice(0, 3), slice(0, 3)),
    ):
        want, got = parts(first, second), parts(first, second)
        same = [
            torch.equal(torch.as_tensor(g), torch.as_tensor(w))
            for g, w in zip(target(*got), write(*want), strict=True)
        ]
        assert all(same) and (want[1] == got[1]).all() and (want[2] == got[2]).all()
    assert not seen.breaks


@changes
def array_of_a_global_replaced():
    holder = type("Holder", (), {})()
    holder.table = np.arange(4.0, dtype=np.float32)
    yield lambda x: x + torch.from_numpy(holder.table)
    holder.table = np.arange(4.0, dtype=np.float32) + 1
    yield
    holder.table = np.arange(4)
    yield
    holder.table[0] = 9
    yield
    holder.table = [1.0]
    holder.table = np.ones((3, 1), dtype=np.float32)
    yield
