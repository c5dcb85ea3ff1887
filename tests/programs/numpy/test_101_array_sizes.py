"""NumPy's arrays of which sizes vary between calls: one graph serves them all.

PYTEST_DONT_REWRITE
"""

import numpy as np
import torch

from tests.programs.program import program


def sized(*sizes):
    """Calls with a square matrix and a vector of each size."""
    return [
        (np.arange(float(n * n)).reshape(n, n) - 2, np.arange(float(n), dtype=np.float32))
        for n in sizes
    ]


SIZES = sized(3, 4, 5, 9, 4)


@program(calls=SIZES, graphs=2)
def universal_functions(m, a):
    return (
        np.sin(a) * 2 + a.sum(),
        m / (a + 1),
        np.maximum(m, a[:, None]),
        m > 1,
        np.where(m > 0, m, 0),
    )


@program(calls=[(torch.ones(n), a) for n, (_, a) in zip((3, 4, 5, 9), SIZES, strict=False)], graphs=2)  # fmt: skip
def with_tensors(x, a):
    b = np.sqrt(x.numpy()) + 1
    return x + torch.from_numpy(a), torch.from_numpy(b) * 2, b


@program(calls=SIZES, graphs=2)
def sizes_as_numbers(m, a):
    n = len(a)
    return a[1:].sum() / n, m / a.shape[0], m * n, np.sum(m) / m.size, m.shape, m.ndim, m.T.strides


@program(calls=SIZES, graphs=2)
def views_of_arguments(m, a):
    return m.T + 1, m, m.T, m[0], m[-1], m[:-1], m[:, 0], m[..., None], m[1:-1, ::2], a[None], a[:, None]  # fmt: skip


@program(calls=SIZES, graphs=2)
def layouts(m, a):
    return m + 1, m.copy(), m.T.copy(), m.reshape(-1), m.T.reshape(-1), m.ravel(), m.flatten(), m.astype(np.float32), np.zeros_like(m.T), np.expand_dims(a, 0), np.squeeze(m[None])  # fmt: skip


@program(calls=SIZES, graphs=2)
def reductions(m, a):
    return m.sum(0), m.mean(axis=1, keepdims=True), m.std(axis=0), np.var(m), m.argmax(axis=1), np.all(m > 0, axis=1), m.max(), m.sum(axis=(0, 1)), np.cumsum(m, axis=1), np.diff(a), np.trace(m)  # fmt: skip


@program(calls=SIZES, graphs=2)
def joined(m, a):
    return np.concatenate([m, m]), np.stack([m, m], 1), np.hstack([a, a]), np.vstack([a, a]), np.tile(a, 2), np.roll(a, 1), np.repeat(a, 2), np.outer(a, a), m @ m.T, np.dot(m, a), np.concatenate([a, np.zeros(2)])  # fmt: skip


@program(calls=SIZES, graphs=2)
def made_of_sizes(m, a):
    n = len(a)
    return np.zeros(n) + a, np.ones((n, 2), dtype=np.float32), np.full(n, 2.5), np.eye(n), np.arange(n), np.arange(1, n, 2), np.arange(n, dtype=np.float32), np.array([a, a])  # fmt: skip


@program(calls=SIZES, graphs=2)
def written(m, a):
    m += a
    m[1:] = 0
    m.T[0] = a
    np.multiply(a, 2, out=a)
    return m * 2, a[::2]


@program(calls=sized(3, 4, 7, 9, 5), graphs=2)
def slices_that_end_before(m, a):
    return a[:5] + 1, m[-5:].sum()


@program(calls=sized(3, 4, 1, 5, 2), graphs=3)
def small_sizes(m, a):
    return m.T + a, m[:, None], m.reshape(-1)


@program(calls=sized(3, 4, 0), graphs=2, plain=True)
def no_elements(m, a):
    return m.T + a, m[:, None], m.reshape(-1)


@program(calls=[(np.arange(float(n)), np.arange(float(k))) for n, k in ((3, 3), (4, 4), (5, 1), (1, 5), (6, 6))], graphs=4)  # fmt: skip
def sizes_that_are_broadcast(a, b):
    return a + b, np.maximum(a, b)


def overlapping(*sizes):
    for n in sizes:
        base = np.arange(float(n + 2))
        yield base[:n], base[2:]


@program(calls=[lambda n=n: next(overlapping(n)) for n in (3, 4, 6, 7)], graphs=0, plain=True)
def overlapping_arguments(a, b):
    a += 1
    b *= 2
    return a + b


@program(calls=[(m[:, :2], a[::2]) for m, a in sized(4, 6, 8, 7)], graphs=2)
def strided_arguments(m, a):
    return m * 2, m.T, a + 1, m.copy(), m.sum(axis=1)


@program(calls=[(torch.ones(n), torch.ones(k)) for n, k in ((3, 3), (4, 4), (5, 1), (1, 5))], graphs=4)  # fmt: skip
def tensors_that_are_broadcast(x, y):
    return x + y
