"""The functions that compute NumPy's universal functions give NumPy's values, for special numbers of all dtypes."""

import itertools

import numpy as np
import pytest
import torch

from frameloom.capture.library.numpy_api import samples, ufuncs
from frameloom.errors import Break

DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]
NUMBERS = [2, 2.5, True, 0.5, np.float32(1.5), np.float64(0.5), np.int8(3), np.int64(-2)]


def special(dtype, seed):
    """36 numbers of a dtype; the first ones are its limits, or NaN, infinities and zeros."""
    random, dtype = np.random.default_rng(seed), np.dtype(dtype)
    numbers = (random.standard_normal(36) * 3).astype(dtype)
    if dtype.kind in "iu":
        numbers[:4] = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1]
    elif dtype.kind == "f":
        numbers[:7] = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, 1.0]
    if seed:
        random.shuffle(numbers)
    return numbers


def operands_of(ufunc):
    if ufunc.nin == 1:
        return [(special(dtype, 0),) for dtype in DTYPES]
    pairs = [(special(a, 0), special(b, 1)) for a, b in itertools.product(DTYPES, DTYPES)]
    numbers = itertools.product(DTYPES, NUMBERS)
    return pairs + [order for d, n in numbers for order in ((special(d, 0), n), (n, special(d, 0)))]


@pytest.mark.parametrize("name", [*ufuncs.FUNCTIONS, *ufuncs.DIVISIONS])
def test_values(name, monkeypatch):
    for module in (samples, ufuncs):  # the tensors of this test have data
        monkeypatch.setattr(module, "Fake", torch.Tensor)
    ufunc = getattr(np, name)
    compute = ufuncs._computed(ufunc, {**ufuncs.FUNCTIONS, **ufuncs.DIVISIONS}[name])
    tried = 0
    for operands in operands_of(ufunc):
        given = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in operands]
        try:
            with np.errstate(all="ignore"):
                want = ufunc(*operands)
            got = compute(*given)
        except (Break, TypeError, ValueError, OverflowError, NotImplementedError, RuntimeError):
            continue  # plain Python runs it
        tried += 1
        what = [getattr(a, "dtype", a) for a in operands]
        pairs = zip(got, want, strict=True) if ufunc.nout > 1 else [(got, want)]
        for g, w in pairs:
            g = g.numpy()
            assert (g.dtype, g.shape) == (w.dtype, w.shape), what
            close = 1e-2 if w.dtype == np.float16 else 1e-4
            np.testing.assert_allclose(g, w, rtol=close, atol=close, err_msg=str(what))
    assert tried
