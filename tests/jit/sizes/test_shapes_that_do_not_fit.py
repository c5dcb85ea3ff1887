"""Arguments whose sizes do not fit each other raise as in eager, for fixed sizes and for sizes that vary: nothing is read or written beside them."""

import pytest
import torch
import torch.nn.functional as F

from frameloom import jit


def index(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def into_rows(x, y):
    x = x.clone()
    x[1:].copy_(y)
    return x


# Functions, shapes that fit, and shapes that do not.  Integers are shapes of indices.
CASES = {
    "copy": (lambda x, y: x.clone().copy_(y), ((4, 6), (6,)), ((4, 6), (5, 6)), ((4, 6), (2, 4, 6))),
    "copy_to_rows": (into_rows, ((4, 6), (3, 6)), ((4, 6), (4, 6)), ((5, 6), (3, 6))),
    "gather": (lambda x, i: x.gather(1, i), ((4, 6), [3, 5]), ((2, 6), [3, 5]), ((4, 6), [5, 2])),
    "scatter": (lambda x, i, y: x.scatter(1, i, y), ((4, 6), [3, 5], (5, 6)), ((4, 6), [3, 5], (5, 4)), ((2, 6), [3, 5], (5, 6))),
    "scatter_add": (lambda x, i: torch.zeros(x.shape[0], 9).scatter_add(1, i, x), ((4, 6), [3, 5]), ((3, 7), [5, 6]), ((4, 4), [3, 5])),
    "index_add": (lambda x, i, y: x.index_add(1, i, y), ((4, 6), [9], (4, 9)), ((3, 6), [9], (4, 9)), ((4, 6), [8], (4, 9))),
    "index_copy": (lambda x, i, y: x.index_copy(0, i, y), ((4, 6), [2], (2, 6)), ((4, 5), [2], (2, 6)), ((4, 6), [1], (2, 6))),
    "select_scatter": (lambda x, y: x.select_scatter(y, 0, 0), ((4, 6), (6,)), ((4, 5), (6,)), ((4, 1), (6,))),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 1, 1), ((4, 7), (4, 6)), ((4, 8), (4, 6)), ((3, 7), (4, 6))),
    "attention_mask": (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, attn_mask=m),
        ((2, 3, 4, 8), (2, 3, 5, 8), (4, 5)), ((2, 3, 1, 8), (2, 3, 5, 8), (4, 5)), ((2, 3, 4, 8), (2, 3, 1, 8), (4, 5)),
    ),
    "loss_weights": (lambda x, i, w: F.cross_entropy(x, i, w), ((4, 6), [4], (6,)), ((4, 5), [4], (6,)), ((4, 7), [4], (6,))),
}  # fmt: skip


def made(shapes):
    return [index(*s) if isinstance(s, list) else torch.randn(s) for s in shapes]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_raise_as_in_eager(name, dynamic):
    fn, fitting, *others = CASES[name]
    jitted = jit(fn, dynamic=dynamic)
    for shapes in (fitting, *others, fitting):
        args = made(shapes)
        try:
            want = fn(*args)
        except (RuntimeError, IndexError) as error:
            assert shapes is not fitting
            with pytest.raises(type(error)) as found:
                jitted(*args)
            assert str(found.value) == str(error)
        else:
            assert shapes is fitting
            torch.testing.assert_close(jitted(*args), want)
