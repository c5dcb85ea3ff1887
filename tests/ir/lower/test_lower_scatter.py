"""Scatters on a GPU: which are loops."""

import pytest
import torch

from frameloom.capture import _capture
from tests.capture.cuda.test_cuda_graphs import Lowering, _tensors_seem_to_be_on_a_gpu, lowered

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture

X, V, AT = torch.randn(4, 5), torch.randn(6, 5), torch.tensor([1, 3, 1, 0, 2, 2])
LOOPS = {
    "rows of 16-bit floats": lambda x, i, v: x.half().index_add(0, i, v.half()),
    "scatter_add": lambda x, i, v: x.scatter_add(0, i.view(6, 1).expand(6, 5), v),
    "scatter": lambda x, i, v: x.scatter(0, i.view(6, 1).expand(6, 5), v),
    "index_add": lambda x, i, v: x.index_add(0, i, v),
    "index_copy": lambda x, i, v: x.index_copy(0, i, v),
    "index_put": lambda x, i, v: x.index_put((i,), v),
    "mean": lambda x, i, v: x.scatter_reduce(0, i.view(6, 1).expand(6, 5), v, "mean"),
}
CALLS = {
    "single 16-bit floats": lambda x, i, v: (
        x.half().select(1, 0).index_add(0, i, v.half().select(1, 0))
    ),
    "sorted sums": lambda x, i, v: x.index_put((i,), v, True),
    "gradient": lambda x, i, v: torch.ops.aten.embedding_dense_backward(v, i, 4, -1, False),
    "prod": lambda x, i, v: x.scatter_reduce(0, i.view(6, 1).expand(6, 5), v, "prod"),
    "amax": lambda x, i, v: x.scatter_reduce(0, i.view(6, 1).expand(6, 5), v, "amax"),
    "narrow": lambda x, i, v: x.char().index_add(0, i, v.char()),
}


def calls(fn, *args):
    return [s for s in lowered(fn, *(args or (X, AT, V)))[1] if s.startswith("aten")]


@pytest.mark.parametrize("name", LOOPS)
def test_what_eager_does_with_atomics(name):
    assert not calls(LOOPS[name])


@pytest.mark.parametrize("name", CALLS)
def test_what_eager_sorts_or_atomics_cannot_do(name):
    assert calls(CALLS[name])


@pytest.mark.parametrize("name", LOOPS)
def test_deterministic_algorithms_are_the_librarys(name):
    torch.use_deterministic_algorithms(True)
    try:
        assert calls(LOOPS[name])
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_input_is_written_where_it_is():
    def step(cache, i, v):
        cache.index_put_((i,), v)
        return (cache * 2).sum(-1)

    program, steps = lowered(step, X, AT, V)
    assert steps.count("cuda:0") == 3, steps  # a check, the write, the sum


LINE, LINES = torch.zeros(1, 5, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int64)
NOWHERE = {
    "scatter": (lambda x, i: x.scatter(0, i, 2.0), LINE),
    "scatter twice": (lambda x, i: x.scatter(0, i, 2.0), LINES),
    "gather": (lambda x, i: x.gather(0, i), LINE),
    "index_select": (lambda x, i: x.index_select(0, i), LINE[0]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), LINE[0]),
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x), LINE[0]),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_places_in_nothing_are_the_librarys(name):
    """Eager finds for some that they are beside its memory, before a kernel would stop the device."""
    fn, at = NOWHERE[name]
    assert calls(fn, X[:0], at)


def test_values_that_do_not_fit_are_refused_before_anything_is_done():
    """A call that has drawn numbers on a GPU cannot start anew where the library raises."""

    def fn(x, i, v):
        x.uniform_()
        x.index_put_((i,), v)

    runner = Lowering()
    with pytest.raises(RuntimeError, match="shape mismatch"):
        _capture.JitFunction(fn, runner)(X[0, :1].clone(), torch.tensor([0]), V[:2, 0])
    assert [b.kind for b in runner.breaks] == ["op_error"]
