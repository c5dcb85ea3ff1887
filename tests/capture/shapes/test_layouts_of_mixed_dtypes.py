"""Layouts of results where operands have to be cast first, as the CPU's kernels do."""

import itertools

import pytest
import torch

from frameloom import jit

LAYOUTS = {
    "row": lambda dtype: torch.ones(1, 4, dtype=dtype).expand(3, 4),
    "column": lambda dtype: torch.ones(4, 1, dtype=dtype).expand(4, 3).t(),
    "one": lambda dtype: torch.ones(1, 1, dtype=dtype).expand(3, 4),
    "transposed": lambda dtype: torch.ones(4, 3, dtype=dtype).t(),
    "stepped": lambda dtype: torch.ones(4, 6, dtype=dtype)[:, ::2].t(),
}


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a * b,
        lambda a, b: a == b,
        lambda a, b: a / b,
        lambda a, b: torch.logical_and(a, b),
        lambda a, b: torch.where(a.bool(), a, b),
        lambda a, b: (a + 1.5) * b,
        lambda a, b: torch.add(b, a, alpha=2),
    ],
    ids=["mul", "eq", "div", "logical_and", "where", "number", "second"],
)
def test_repeated_operands_of_other_dtypes(fn):
    pairs = [
        [LAYOUTS[name](dtype) for name, dtype in zip(names, dtypes, strict=True)]
        for names in itertools.product(("row", "column", "one"), ("transposed", "stepped", "row"))
        for dtypes in ((torch.bool, torch.int64), (torch.int64, torch.float32), (torch.float32, torch.int64))
    ]  # fmt: skip

    def all_of(pairs):
        return [fn(a, b) for a, b in pairs]

    got = jit(all_of)(pairs)
    assert [t.stride() for t in got] == [t.stride() for t in all_of(pairs)]


def test_angle_of_complex_numbers():
    x = torch.ones(4, 3, dtype=torch.complex64).t()
    assert jit(lambda x: x.angle())(x).stride() == x.angle().stride()


def test_sizes_that_vary():
    for n in (3, 4, 5):
        mask, x = torch.ones(1, n, dtype=torch.bool).expand(3, n), torch.ones(n, 3).t()
        assert jit(lambda a, b: a * b, dynamic=True)(mask, x).stride() == (mask * x).stride()


@pytest.mark.parametrize("of", [torch.float32, None])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_statistics_of_group_norm(of, last, dynamic):
    """Of 16-bit inputs they are of the parameters' dtype, which the backward pass counts on."""
    x = torch.randn(3, 4, 5, 7).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    weight = None if of is None else torch.randn(4, dtype=of)

    def fn(x, weight):
        return torch.native_group_norm(x, weight, None, 3, 4, 35, 2, 1e-5)

    got, want = jit(fn, dynamic=dynamic)(x, weight), fn(x, weight)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.stride()) == (w.dtype, w.stride())
        torch.testing.assert_close(g, w, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("is_row", [False, True])
@pytest.mark.parametrize("name", ["layer_norm", "group_norm"])
def test_norms_refuse_parameters_of_another_dtype(name, is_row):
    x = torch.randn(3, 4, 4, dtype=torch.float64)
    x = x if is_row else x.mT

    def fn(x, weight):
        if name == "group_norm":
            return torch.nn.functional.group_norm(x, 2, weight)
        return torch.nn.functional.layer_norm(x, (4,), weight)

    with pytest.raises(RuntimeError, match="mixed dtype"):
        jit(fn)(x, torch.ones(4))
