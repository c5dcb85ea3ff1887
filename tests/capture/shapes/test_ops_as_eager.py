"""What the op database showed: programs of one or two ops whose results, layouts or exceptions were not eager's."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from frameloom import jit
from tests.capture.capturing import captured
from tests.helpers import check

X = torch.arange(12.0).reshape(3, 4) - 5
C = torch.complex(X, X.flip(0))


def whole(fn, *args):
    captured(fn, *args, graphs=1, breaks=0, no_plain=True)


def test_results_come_before_what_is_written_beside_them():
    whole(lambda x: F.rrelu(x, training=True), X)
    mean, var = torch.zeros(4), torch.ones(4)
    whole(
        lambda x, m, v: torch._native_batch_norm_legit(x, None, None, m, v, True, 0.1, 1e-5),
        X, mean, var,
    )  # fmt: skip


def test_tensors_that_pytorch_changes_in_shape_itself():
    if torch.__version__ >= "2.13":  # before, it looks at data
        whole(lambda x: torch.quantile(x, 0.3, dim=1), X)
        whole(lambda x: torch.quantile(x, 0.3, dim=0, keepdim=True), X)
    whole(lambda x: x[None, :, None].matmul(x[0]), X)


def test_an_unused_result_may_still_raise():
    def f(x, index):
        x.gather(0, index)
        return x + 1

    jitted = jit(f)
    with torch.no_grad():
        assert torch.equal(jitted(X, torch.zeros(1, 4, dtype=torch.long)), X + 1)
        with pytest.raises(RuntimeError, match="out of bounds"):
            jitted(X, torch.full((1, 4), 7))
    check(lambda x: (torch.histc(x, 4), x + 1)[1], torch.tensor([1.0, torch.inf]))
    captured(lambda x: torch.linalg.inv(x), torch.zeros(2, 2), breaks=0)


def test_a_call_may_raise_of_which_only_nothing_is_read():
    def fn(x):
        return torch.native_batch_norm(x, None, None, None, None, True, 0.5, 1e-5)[0].tril(2)

    check(fn, torch.ones(1, 3, 6, 0))
    check(fn, torch.ones(1, 3, 6, 2))


def test_probabilities_are_checked():
    check(lambda p, t: F.binary_cross_entropy(p, t), torch.full((4,), 1.5), torch.ones(4))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.conj(),
        lambda x: (x.conj() * 2, x.mH, x.conj().t() + 1),
        lambda x: (x * 2).conj(),
        lambda x: (x.conj().imag, x.conj().real),
        lambda x: x.conj().resolve_conj(),
        lambda x: x.conj().conj() + 1,
        lambda x: ((x * 2).mH @ x).mH.sum(),
        lambda x: torch.fft.ihfft(x.real),
    ],
)
def test_lazily_conjugated(fn):
    check(fn, C, breaks=0)


def test_a_conjugated_view_is_written_plainly():
    check(lambda x: x.conj().mul_(2), C)


@pytest.mark.parametrize(
    "x",
    [
        torch.empty(5, 0, 20)[..., ::2],
        torch.empty(1, 0, 6)[..., ::2],
        torch.ones(4)[3:].as_strided((1,), (2,)),
    ],
)
def test_layouts_where_nothing_lies(x):
    for fn in (
        torch.zeros_like,
        torch.flip,
        F.hardtanh,
        torch.nan_to_num,
        torch.isreal,
        torch.frexp,
    ):
        given = (x, (0,)) if fn is torch.flip else (x,)
        captured(fn_of(fn), *given)


def fn_of(fn):
    return lambda *args: fn(*args)


def test_library_results_lie_as_they_do():
    for fn in (
        torch.linalg.svd,
        torch.linalg.eig,
        torch.fft.rfftn,
        lambda x: torch.nonzero_static(x, size=3),
    ):
        check(fn_of(fn), X[:, :3].clone(), breaks=0)


def test_writes_that_eager_refuses():
    captured(lambda x: x.add_(x.t()), torch.ones(3, 3))
    captured(lambda x: x.expand(3, 3).add_(1), torch.ones(1, 3))
    captured(lambda x, out: torch.gather(x, 0, torch.zeros(1, 1).long(), out=out), X, torch.zeros(1, 1).double())  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool, torch.int8], ids=str)
def test_a_trace_of_what_not_every_version_takes(dtype):
    captured(lambda x: x.trace(), X.to(dtype))


def test_a_number_to_write_to():
    captured(lambda x: torch.mul(x, x, out=1.5), torch.tensor(3))
    captured(lambda x: torch.mul(x, x, out=False), torch.tensor(3))


def test_writes_between_parts_of_a_tensor():
    whole(lambda x: x[0].add_(x[1]), X)
    whole(lambda x: x[:, 0].add_(x[:, 1]), X)


def test_random_numbers_for_memory_with_gaps():
    captured(lambda x: x[:, ::2].normal_(), torch.zeros(6, 40))


def test_numbers_of_a_table_by_device_and_dtype():
    table = {("cpu", torch.float32): 2.0, ("cpu", torch.float64): 3.0}
    whole(lambda x: x * table[(x.device.type, x.dtype)], X)


@torch.library.custom_op("frameloom_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def test_custom_ops():
    whole(lambda x: twice(x) + 1, X)


def test_shapes_of_tuples():
    whole(lambda x, a, b: x.sum() + torch.ones(torch.broadcast_shapes(a, b)), X, (3,), (4, 1))


def test_singular_values_are_computed_without_vectors():
    for fn in (torch.linalg.cond, lambda x: torch.linalg.norm(x, 2), torch.linalg.svdvals):
        r = captured(fn_of(fn), torch.randn(5, 5), breaks=0)
        assert "False, False" in str(r.graphs[0].graph) or "svdvals" in str(r.graphs[0].graph)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("fn", [torch.linalg.svdvals, torch.linalg.eigvalsh])
def test_values_without_vectors_where_no_gradient_is_wanted(fn, mode):
    """Other algorithms compute them, and round otherwise."""

    def f(x):
        with mode():
            return fn(x)

    x = torch.randn(8, 8, requires_grad=True)
    assert torch.equal(jit(f)(x), f(x))


def test_composite_functions_with_out():
    captured(lambda x, out: torch.linalg.matrix_rank(x, out=out), torch.eye(3), torch.tensor(0))
    captured(lambda x, out: torch.add(x, 1, out=out), X, torch.zeros(3, 4), graphs=1, breaks=0)
    captured(
        lambda x, out: torch.sort(x, out=out),
        X,
        (torch.zeros(3, 4), torch.zeros(3, 4).long()),
        graphs=1,
        breaks=0,
    )


def test_absolute_values_of_complex_numbers_have_no_place_in_them():
    captured(lambda x: x.abs_(), C, breaks=1)


@pytest.mark.parametrize("x", [X.bfloat16(), torch.randn(3, 8)[:, ::2].half()])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_of_statistics_of_halves(x, dtype):
    scale = None if dtype is None else torch.ones(4, dtype=dtype)
    captured(lambda x, s: torch.native_layer_norm(x, [4], s, s, 1e-5), x, scale)
    for running in (torch.ones(4), torch.ones(4, dtype=x.dtype)):
        captured(
            lambda x, s, m, v: torch.native_batch_norm(x, s, s, m, v, True, 0.1, 1e-5),
            x, scale, running.clone(), running.clone(),
        )  # fmt: skip


def test_scatter_into_a_part_of_memory():
    captured(lambda x, y: torch.as_strided_scatter(x, y, (2,), (1,), 0), X[1:], X[0, :2], breaks=1)
    whole(lambda x, y: torch.as_strided_scatter(x, y, (2,), (1,), 1), X, X[0, :2])


def test_random_slopes_of_nothing():
    for x in (torch.zeros(2, 0), torch.zeros(2, 0, 8)[..., ::2]):
        captured(lambda x: F.rrelu(x, training=True), x)


def test_parts_put_back_into_elements_read_as_another_dtype():
    whole(lambda x: x.view(torch.int32).diagonal_scatter(x.view(torch.int32)[0, :3] * 2), X)
    whole(lambda x: x.view(torch.int32).select_scatter(torch.ones(4, dtype=torch.int32), 0, 1), X)
    whole(lambda x: x.view(torch.int32).slice_scatter(x.view(torch.int32)[:1] * 2, 0, 2), X)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_parts_put_back_have_the_right_size(size):
    part = torch.ones(size)
    check(lambda x, y: torch.diagonal_scatter(x, y), X, part)
    check(lambda x, y: torch.diagonal_scatter(x, y), X[:0], part)
    check(lambda x, y: torch.diagonal_scatter(x, y, -1), X, part)
    check(lambda x, y: torch.select_scatter(x, y, 1, 0), X, part)
    check(lambda x, y: torch.slice_scatter(x, y[:, None], 1, 1, 2), X, part)


def test_views_beyond_a_tensor():
    for fn in (
        lambda x: x.as_strided((8,), (1,), 0) + 1,
        lambda x: x.as_strided((2, 3), (4, 1)) + 1,
        lambda x: (x * 2).as_strided((8,), (1,)) + 1,
        lambda x: torch.as_strided_scatter(x, x[:2], (2,), (3,), 1),
    ):
        check(fn, X[0].clone())
        check(fn, X[0])
    whole(lambda x: x.as_strided((2, 3), (1, 1), 0) + 1, X[0])
    # Its losses are computed where their mean then is, and what is left of them there nobody knows.
    check(lambda x: torch.nn.functional.mse_loss(x, x + 1).as_strided((2,), (1,))[:1], X[0])


def test_parts_put_back_lie_where_the_tensor_does():
    fn = jit(lambda x: x.select_scatter(x[0], 0, 0))
    for x in (X, X[1:], X * 2):
        assert fn(x).storage_offset() == x.storage_offset()


def test_variance_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fn in (lambda x: torch.var_mean(x, correction=-5), lambda x: torch.std(x, dim=0)):
            got, want = jit(fn)(X[:0]), fn(X[:0])
            torch.testing.assert_close(got, want, equal_nan=True)


def test_indices_into_nothing():
    index = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(RuntimeError, match="out of bounds"):
        jit(lambda x, i: x.scatter(0, i, 1.0))(X[:0], index)
    with pytest.raises(IndexError, match="out of bounds"):
        jit(lambda x, i: torch.index_put(x, (i[0],), torch.ones(())))(X[:0], index)
    check(lambda x, i: x.scatter(0, i, 1.0), X[:0], index[:0])


def test_norms_without_elements():
    for order in (-1, -2, -math.inf, 0, 1, 2, math.inf):
        check(lambda x: torch.linalg.vector_norm(x, order, dim=1), X[:, :0])
        check(lambda x: torch.norm(x, order), X[:0])


def test_embedding_without_rows():
    look = lambda w, i: torch.nn.functional.embedding(i, w)
    check(look, X[:0], torch.tensor([1, 2]))
    check(look, X[:0], torch.zeros(0, dtype=torch.long))


def test_a_weight_without_channels_is_refused():
    for weight in (torch.ones(0, 2, 3), torch.ones(0, 2, 3, dtype=torch.complex64)):
        for fn in (F.conv1d, F.conv_transpose1d):
            check(lambda x, w, f=fn: f(x, w), torch.ones(1, 2, 5, dtype=weight.dtype), weight)


def test_statistics_of_16_bit_batches_are_of_the_parameters_dtype():
    op = torch.ops.aten._batch_norm_with_update.default
    for dtype in (torch.float32, torch.bfloat16):
        given = [torch.ones(4, dtype=dtype) for _ in range(4)]
        check(lambda x, *p: op(x, *p, 0.1, 1e-5)[:3], torch.randn(3, 4, 2).bfloat16(), *given)
