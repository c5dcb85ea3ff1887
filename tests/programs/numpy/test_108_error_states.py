"""What NumPy does at an error of floats, where `numpy.seterr` changes it between calls.

PYTEST_DONT_REWRITE
"""

import contextvars

import numpy as np
import pytest
import torch

from frameloom import jit
from frameloom.capture import _capture
from tests.programs.changing import SAME, changes
from tests.programs.program import X

ZEROS = np.zeros(3, np.float32)
HUGE = np.full(3, 3e38, np.float32)
TINY = np.full(3, 1e-30, np.float32)


def raises_later(program, *args):
    """A program that is called where errors are ignored, then where they raise, then as before."""

    @changes
    def changed():
        with np.errstate(all="ignore"):
            yield program, X, *args
            with np.errstate(all="raise"):
                yield
                yield SAME
            yield

    return changed


quotient = raises_later(lambda x, a: (x + 1, 1 / (a + 1), a / a.sum()), ZEROS + 1)
divides_by_zero = raises_later(lambda x, a: (x + 1, 1 / a), ZEROS)
overflow = raises_later(lambda x, a: (x + 1, a * 2), HUGE)
underflow = raises_later(lambda x, a: (x + 1, a * a), TINY)
in_a_cast = raises_later(lambda x, a: (x + 1, a.astype(np.float16)), HUGE)
in_a_reduction = raises_later(lambda x, a: (x + 1, a.sum()), HUGE)
of_a_tensor = raises_later(lambda x: torch.from_numpy(np.exp(x.numpy() * 1000)))
of_constants = raises_later(lambda x: (x + 1, np.array([1e300], np.float32)))
decides_a_branch = raises_later(lambda x, a: x + 1 if (1 / a).sum() > 0 else x - 1, ZEROS)
of_a_number = raises_later(lambda x, n: (x + 1, n * n), np.float32(1e-30))
of_constant_numbers = raises_later(lambda x: x + np.exp(-1000.0))


def stores(x, a):
    y = x + 1
    a[1] = 1e300
    return y


is_stored = raises_later(stores, ZEROS.copy())


@changes
def by_errstate():
    with np.errstate(all="ignore"):
        yield lambda x, a: (x + 1, 1 / a), X, ZEROS
        with np.errstate(divide="raise"):
            yield
        with np.errstate(under="warn"):
            yield
            yield SAME


@changes
def calls_a_function():
    def log(*what):
        seen.append(what)

    seen = []
    with np.errstate(all="ignore"):
        yield lambda x, a: (x + 1, 1 / a), X, ZEROS
        with np.errstate(all="call", call=log):
            yield
        assert [what for what, _ in seen] == ["divide by zero"] * 2


@changes
def numbers_without_errors():
    yield lambda x: x * np.sqrt(2 / np.pi)
    with np.errstate(all="raise"):
        yield SAME


def test_state_of_numpy_1():
    def ask(bits):
        return _capture.numpy_is_quiet(None, lambda: [8192, bits, None])

    assert ask(0o1011) and ask(0)
    assert not ask(0o1021) and not ask(0o1000 * 4)


def test_state_of_another_context():
    compiled = jit(lambda a: 1 / a)
    for _ in range(2):
        assert np.isinf(compiled(ZEROS)).all()
    other = contextvars.copy_context()
    other.run(np.seterr, all="raise")
    with pytest.raises(FloatingPointError):
        other.run(compiled, ZEROS)
    assert np.isinf(compiled(ZEROS)).all()
