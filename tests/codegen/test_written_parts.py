"""Writes to parts of tensors as a GPU gets them: kernels that are cut where the parts meet."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom import jit
from tests.codegen.interpreted_gpu import on_a_gpu


def rows(x, y):
    x[:32] = y[:32]
    x[32:].add_(1)
    return x * 2


def columns(x, y):
    x.narrow(1, 0, 32).copy_(y[:, 32:])
    x[:, 32:].mul_(3)
    return x + 1


def of_a_result(x, y):
    t = x + y
    t[:16] = 3
    t.tril_()
    return t.mul_(2)


def what_is_there(x, y):
    x[:32] = x[:32]
    return x + y


@pytest.mark.parametrize("fn", [rows, columns, of_a_result, what_is_there])
def test_as_plain(fn):
    x, y = torch.randn(2, 64, 64)
    own = x.clone()
    with on_a_gpu():
        given = jit(fn)(x, y)
    torch.testing.assert_close(given, fn(own, y))
    torch.testing.assert_close(x, own)


def of_some_rows(x):
    first, *_ = x.chunk(2)
    x.mul_(2)
    first.mul_(3)


@pytest.mark.parametrize("shape", [(4, 3), (4, 4, 4)])
def test_halves_of_a_known_number_of_rows_of_any_length(shape):
    x = torch.randn(shape)
    own = x.clone()
    with on_a_gpu():
        fn = jit(lambda x: [*x.unbind(), of_some_rows(x)][-1], dynamic=True)
        fn(x)
    of_some_rows(own)
    torch.testing.assert_close(x, own)
