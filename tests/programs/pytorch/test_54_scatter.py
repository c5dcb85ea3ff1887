"""Writes at places that data decides."""

import pytest
import torch

from tests.helpers import check, jit_for_test, observe

I = torch.tensor([1, 3, 1, 0, 2, 2])
X, V = torch.randn(4, 5), torch.randn(6, 5)
REDUCTIONS = ["sum", "prod", "mean", "amax", "amin"]


def fails_alike(fn, *args):
    """Both raise the same type, and leave the same behind."""
    jitted = jit_for_test(fn)
    want, got = observe(fn, args, {}), observe(jitted, args, {})
    assert type(got.error) is type(want.error) is not type(None), (got.error, want.error)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.uint8,
        torch.int16,
        torch.bool,
    ],
    ids=str,
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_elements_of_any_type(dtype, accumulate):
    x, v = (10 * torch.randn(4)).to(dtype), (10 * torch.randn(6)).to(dtype)
    check(lambda x, v: x.index_put((I,), v, accumulate), x, v)
    if accumulate:
        check(lambda x, v: x.scatter_add(0, I, v), x, v)
        check(lambda x, v: x.index_add(0, I, v), x, v)
    else:
        check(lambda x, v: x.scatter(0, I, v), x, v)
        check(lambda x, v: x.index_fill(0, I[:2], v[0]), x, v)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16], ids=str)
def test_reductions_of_what_meets(reduce, include_self, dtype):
    x, v = (9 * X).to(dtype), (9 * V).to(dtype)
    i = torch.randint(0, 4, (6, 5))
    check(lambda x, v: x.scatter_reduce(0, i, v, reduce, include_self=include_self), x, v)


@pytest.mark.parametrize("reduce", ["amax", "amin", "sum", "prod"])
def test_reductions_of_what_is_no_number(reduce):
    x, v = torch.randn(4), torch.randn(6)
    x[0], v[0], v[4] = torch.nan, torch.nan, torch.inf
    check(lambda x, v: x.scatter_reduce(0, I, v, reduce), x, v)


@pytest.mark.parametrize("form", ["scatter_", "scatter_add_", "index_add_", "index_copy_"])
def test_inputs_are_changed_in_place(form):
    i = I if form.startswith("index") else I[:, None].expand(6, 5)

    def program(x, v):
        return getattr(x, form)(0, i, v * 2)

    check(program, X, V)
    check(program, X.t().contiguous().t(), V)


def test_what_is_read_before_is_the_old_and_behind_the_new():
    def program(x, v):
        before = x * 2
        x[I] = v
        return before, x + 1, x[1]

    check(program, X, V)


def test_values_that_depend_on_what_they_change():
    check(lambda x: x.index_add_(0, I, x[I] * 2), X)
    check(lambda x: x.index_copy_(0, torch.tensor([1, 2, 3]), x[:3]), X)
    check(lambda x, v: x.scatter_add_(0, I[:, None].expand(6, 5), v + x.sum()), X, V)


def test_two_inputs_that_are_changed_from_each_other():
    def program(x, v):
        x.index_add_(0, I, v)
        v.index_copy_(0, torch.tensor([0, 1, 2, 4]), x)
        return x.sum()

    check(program, X, V)


def test_the_value_beside_the_changed_input():
    def program(x, v):
        y = x.index_add(0, I, v)
        x.copy_(y)
        return y, x

    check(program, X, V)


def test_one_after_the_other():
    def program(x, v):
        y = torch.relu(x)
        y.index_add_(0, I, v)
        y[:, torch.tensor([0, -1])] = 7
        y.scatter_add_(1, torch.zeros(4, 2, dtype=torch.long), y[:, :2])
        return y * 2

    check(program, X, V)


def test_views_of_inputs_and_of_results():
    def program(x, v):
        x[1:].index_add_(0, torch.tensor([0, 2]), v[:2])
        x.t()[torch.tensor([0, 4])] += 1
        return x.select(1, 0)

    check(program, X, V)


@pytest.mark.parametrize(
    "indices",
    [
        (torch.tensor([-1, 0, 0]), torch.tensor([2, -5, 1])),
        (None, torch.tensor([[1], [-1]])),
        (torch.tensor(2), None),
        (torch.tensor([[0, 1], [1, 0]]), torch.tensor([3])),
        (torch.tensor([1, 3], dtype=torch.int32),),
    ],
    ids=str,
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_indices_of_several_dimensions(indices, accumulate):
    value = torch.tensor(2.5)
    put, put_ = torch.ops.aten.index_put, torch.ops.aten.index_put_
    check(lambda x: put(x, indices, value, accumulate), X)
    check(lambda x: put_(x.clone(), indices, x.sum(), accumulate) * 2, X)


def test_places_between_dimensions():
    x, i = torch.randn(3, 4, 5, 2), torch.tensor([1, 0])

    def program(x):
        x[i, :, i + 2] = torch.arange(16.0).view(2, 4, 2)
        x[:, i, i + 2] = torch.arange(12.0).view(3, 2, 2)
        x[i, 1:3] += 2
        return x

    check(program, x)
    check(lambda x: program(x.clone()), x)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i, v: x.scatter(0, i[:, None].expand(6, 5), v),
        lambda x, i, v: x.scatter_add(0, i[:, None].expand(6, 5), v),
        lambda x, i, v: x.index_add(0, i, v),
        lambda x, i, v: x.index_add(0, i, v, alpha=2),
        lambda x, i, v: x[:, 0].index_add(0, i, v[:, 0]),
        lambda x, i, v: x.index_copy(0, i, v),
        lambda x, i, v: x.index_fill(0, i, 1.0),
        lambda x, i, v: x.index_put((i,), v),
        lambda x, i, v: x[:, 0].scatter_reduce(0, i, v[:, 0], "mean"),
    ],
)
@pytest.mark.parametrize("bad", [4, -5])
def test_indices_out_of_range_raise(fn, bad):
    i = I.clone()
    i[4] = bad
    fails_alike(fn, X, i, V)


@pytest.mark.compiled
@pytest.mark.parametrize("bad", [4, -1])
def test_places_before_a_bad_index_are_written(bad):
    i, x, v = I.clone(), torch.zeros(4), torch.ones(6)
    i[3] = bad
    program = lambda x, i, v: x.scatter_add_(0, i, v)
    jitted, mine, theirs = jit_for_test(program), x.clone(), x.clone()
    for call, t in ((program, theirs), (jitted, mine)):
        with pytest.raises(RuntimeError):
            call(t, i, v)
    assert torch.equal(mine, theirs)


def test_nothing_to_write_and_nowhere():
    none = torch.empty(0, dtype=torch.long)
    check(lambda x: x.scatter(0, none, torch.empty(0)), torch.randn(4))
    check(lambda x: x.index_add(0, none, torch.empty(0, 5)), X)
    check(lambda x: x.index_put((none,), torch.empty(0, 5)), X)
    check(lambda x: x.index_put((none,), torch.tensor(1.0)), torch.empty(0, 3))
    check(lambda x: x.index_fill(0, none, 2.0) + 1, X)


def test_numbers_and_single_elements():
    check(lambda x: x.scatter(1, torch.tensor([[0, 2], [1, 1]]), 3.5), X)
    check(lambda x: x.scatter(1, torch.tensor([[0, 2], [1, 1]]), 2, reduce="multiply"), X)
    check(lambda x: x.scatter_add(0, torch.tensor(0), torch.tensor(2.0)), torch.tensor(1.0))
    check(lambda x: x.index_add(0, torch.tensor(2), torch.ones(1, 5)), X)
    check(lambda x: x.index_fill(0, torch.tensor([-1, 1]), 3), X.long())
    check(lambda x: x.index_add(0, I, torch.ones(6, 5), alpha=-0.5), X)


def test_places_that_are_constants_after_all():
    check(lambda x: x.scatter_add(0, torch.zeros(6, 5, dtype=torch.long), torch.ones(6, 5)), X)
    check(lambda x, v: x.index_add(0, torch.arange(4), v[:4]), X, V)


def test_gradients_of_an_embedding():
    i = torch.tensor([[1, 3, 1], [0, 2, 2]])
    backward = torch.ops.aten.embedding_dense_backward
    check(lambda g: backward(g, i, 5, -1, False), torch.randn(2, 3, 8))
    check(lambda g: backward(g * 2, i, 5, 1, False), torch.randn(2, 3, 8))
    check(lambda g: backward(g, i, 5, 1, True), torch.randn(2, 3, 8))


def test_large_enough_for_threads():
    x, v, i = torch.randn(300, 200), torch.randn(400, 200), torch.randint(0, 300, (400,))
    check(lambda x, v: x.index_add(0, i, v), x, v, rtol=1e-4)
    check(lambda x, v: x.t().index_add(1, i, v.t()), x, v, rtol=1e-4)
    j = torch.randint(0, 200, (300, 190))
    check(lambda x, v: x.scatter_add(1, j, v[:300]), x, v, rtol=1e-4)


def test_a_cache_of_keys_is_written_where_it_is():
    def step(cache, key, at):
        cache[:, :, at] = key
        return (cache * 2).sum(-1)

    found = check(step, torch.randn(2, 3, 8, 4), torch.randn(2, 3, 1, 4), torch.tensor([3]))
    assert not any("copy" in k.name for k in found.kernels)


def test_one_value_where_a_mask_is_true():
    def program(x, row):
        x[x < 0] = 0
        x[x.sum(1) > 1] = row
        x[:, row > 0] = torch.tensor([7.0])
        x[:, row < 0] = x[:, :1]
        return x.sum()

    found = check(program, X, V[0])
    assert not any(g.library_calls for g in found.graphs), [g.library_calls for g in found.graphs]
    check(lambda x, row: program(x.clone(), row), X, V[0])


def test_as_many_values_as_a_mask_has_ones():
    def program(x, m):
        x[m] = torch.arange(3.0)
        return x

    check(program, X[:, 0].clone(), torch.tensor([True, False, True, True]))
    with pytest.raises(IndexError):
        jit_for_test(program)(X[:, 0].clone(), torch.ones(5, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.bfloat16], ids=str)
def test_a_mask_and_other_types(dtype):
    put = torch.ops.aten.index_put
    x, m = X.to(dtype), X > 0
    check(lambda x: (put(x, [m], x[0, 0]), put(x, [m], x[0, :1], True)), x)
