"""Arguments that eager refuses are refused, whether or not anybody looks at the result: PyTorch's shape functions do not check all that its kernels check."""

import pytest
import torch
import torch.nn.functional as F

from frameloom import jit
from tests.observe import assert_same_call, observe

ROWS, LINES = ((5, 2), (3, 4), (2, 4)), ((5,), (3,), (2,))
# Functions, and shapes of their argument.
CASES = {
    "linear": (lambda x: F.linear(x.double(), torch.ones(3, x.shape[-1])), ROWS),
    "matmul": (lambda x: x @ x.double().mT, ROWS),
    "linear_bias": (lambda x: F.linear(x, x, x[:, 0].double()), ROWS),
    "dot": (lambda x: x.dot(x.double()), LINES),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(1, x.shape[1], 2)), ((2, 3), (3, 3), (1, 2))),
    "layer_norm": (lambda x: F.layer_norm(x.double(), (3,), torch.ones(3)), ((2, 3), (4, 3))),
    "conv_transpose1d": (
        lambda x: F.conv_transpose1d(x, torch.ones(1, 1, 2), padding=2),
        ((1, 4), (1, 3), (1, 5)),
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), ((2, 2), (3, 4), (4, 4))),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), ((2, 2), (3, 4), (4, 4))),
    "native_group_norm": (
        lambda x: torch.native_group_norm(x, torch.ones(4), None, len(x), x.shape[1], 3, 1, 0.1)[0],
        ((2, 3, 3), (3, 5, 3), (1, 6, 3)),
    ),
    "one_hot": (lambda x: F.one_hot(torch.arange(3), 0), LINES),
    "zeros": (lambda x: torch.zeros(x.shape[0] - 3, 1), ROWS),
    "new_zeros": (lambda x: x.new_zeros(x.shape[0], -1), ROWS),
    "full": (lambda x: torch.full((x.shape[0] - 3, 1), 2), ROWS),
    "eye": (lambda x: torch.eye(x.shape[0] - 3), ROWS),
    "repeat": (lambda x: x.repeat(x.shape[0] - 3, 1), ROWS),
    "tile": (lambda x: x.tile(-1), ROWS),
    "softmax": (lambda x: x.softmax(-2), LINES),
    "log_softmax": (lambda x: x.log_softmax(1), LINES),
    "sort": (lambda x: x.sort(1)[0], LINES),
    "cumsum": (lambda x: x.cumsum(1), LINES),
    "cummax": (lambda x: x.cummax(1)[0], LINES),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), LINES),
    "tril": (lambda x: x.tril(-1), LINES),
    "roll": (lambda x: x.roll(1, -2), LINES),
    "roll_twice": (lambda x: x.roll((1, 2), (0,)), LINES),
    "flip": (lambda x: x.flip(0, -1), LINES),
    "sum": (lambda x: x.sum((0, -1)), LINES),
    "amax": (lambda x: x.amax((0, -1)), LINES),
    "var": (lambda x: x.var((0, -1)), LINES),
    "std of one number": (lambda x: x.std(0), ((3, 2), (4, 2), (1, 2))),
    "any": (lambda x: (x > 0).any((0, -1)), LINES),
    "logsumexp": (lambda x: x.logsumexp((0, -1)), LINES),
    "celu": (lambda x: F.celu(x, len(x) - 3), ROWS),
    "searchsorted": (lambda x: torch.searchsorted(x.sum(), x[0, 0]), ROWS),
    "dist": (lambda x: torch.dist(x > 0, x), ROWS),
    "cross_entropy": (
        lambda x: F.binary_cross_entropy_with_logits(x.long(), x, reduction="none"),
        ROWS,
    ),
}


# ... and dtypes that only kernels refuse.
KERNELS = {
    "trace": (lambda x: x.trace(), torch.bool),
    "unfold": (lambda x: F.unfold(x[None, None], 2), torch.int64),
    "nll_loss": (lambda x: F.nll_loss(x, torch.zeros(len(x), dtype=torch.int64)), torch.int32),
    "nll_loss2d": (
        lambda x: F.nll_loss(x[None, :, None], torch.zeros(1, 1, 4, dtype=torch.int64)),
        torch.int64,
    ),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x[None, None], 2), torch.uint8),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), torch.int64),
    "arange": (lambda x: torch.arange(3, dtype=x.dtype), torch.bool),
}


@pytest.mark.parametrize("name", KERNELS)
def test_dtypes(name):
    fn, dtype = KERNELS[name]
    x = torch.ones(4, 4).to(dtype)
    with pytest.raises((NotImplementedError, RuntimeError)) as wanted:
        fn(x)
    with pytest.raises(wanted.type):
        jit(lambda x: fn(x))(x)


# What is refused, or warned of, of tensors without elements, too: the result, in which nothing has to be computed, is no reason to leave a call out.
FEW = {
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(1, keepdim=True),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(-1),
    "roll": lambda x: x.roll((1, 1), -1),
    "roll_of_one": lambda x: x.roll(1, (0, 1)),
    "logsumexp": lambda x: x.logsumexp(()),
}


@pytest.mark.parametrize("name", FEW)
def test_of_few_elements(name):
    fn = FEW[name]
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
        for shape in ((0, 4), (2, 4), (3, 0), (3, 1)):
            args = (torch.ones(shape, dtype=dtype),)
            want, got = (observe(f, args) for f in (fn, jit(lambda x: fn(x))))
            assert_same_call(got, want, f"{dtype} of {shape}: ", 1e-5, 1e-5)


def unused(fn):
    def call(x):
        try:
            fn(x)
        except (RuntimeError, IndexError) as error:
            return type(error), str(error)
        return x.shape[0]

    return call


# Functions of three dimensions whose kernels refuse some dtypes; the shape functions take all of them.
DTYPES = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x, 3),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm_in_evaluation": lambda x: F.batch_norm(x, x[0, :, 0] * 0, x[0, :, 0] * 0 + 1),
    "instance_norm": F.instance_norm,
    "logsigmoid": F.logsigmoid,
    "softplus": F.softplus,
    "softmax": lambda x: F.softmax(x, 0),
    "reflect": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 1), mode="replicate"),
    "avg_pool1d": lambda x: F.avg_pool1d(x, 2),
    "linear_upsampling": lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
}

ON_GPU = {
    "bmm": lambda x: x @ x.mT,
    "linear": lambda x: F.linear(x, x[0]),
    "mv": lambda x: x[0] @ x[0, 0],
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "batch_norm_of_statistics": lambda x: F.batch_norm(x, x[0, :, 0].float(), x[0, :, 0].float()),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", DTYPES | ON_GPU)
def test_dtypes_refused_on_a_gpu(name):
    op = (DTYPES | ON_GPU)[name]

    def fn(x):
        return op(x)

    for dtype in (torch.int64, torch.uint8):
        args = (torch.ones(2, 3, 4, dtype=dtype, device="cuda"),)
        assert_same_call(observe(jit(fn), args), observe(fn, args), f"{name} {dtype}")


@pytest.mark.parametrize("draw", ["bernoulli_", "geometric_"])
def test_draws_refused_in_a_try_block(draw):
    def program(x):
        try:
            getattr(x, draw)(0.5)
        except NotImplementedError:
            return x + 1

    args = (torch.ones(3, dtype=torch.complex64),)
    assert_same_call(observe(jit(program), args), observe(program, args), draw)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_cosine_similarity_of_complex_numbers(requires_grad):
    def fn(x):
        return F.cosine_similarity(x, x)

    x = torch.ones(2, 3, dtype=torch.complex64, requires_grad=requires_grad)
    with pytest.raises(RuntimeError, match="ComplexFloat"):
        fn(x)
    with pytest.raises(RuntimeError, match="ComplexFloat"):
        jit(fn)(x)


def test_data_that_a_kernel_refuses_though_nobody_reads_its_result():
    def f(x, order):
        torch.searchsorted(x, x, sorter=order)
        return x + 1

    args = (torch.ones(3), torch.tensor([0, 1, 5]))
    assert_same_call(observe(jit(f), args), observe(f, args), "sorter")


UNREAD = {
    "zeros": lambda x: torch.zeros_like(x.softmax(-1)),
    "ones of a view": lambda x: torch.ones_like(x.softmax(-1)[:1].t()),
    "of several": lambda x: torch.full_like(x.softmax(-1) * 2, 3) + x.softmax(-1).new_zeros(1),
    "memory": lambda x: torch.empty_like(x.softmax(-1)).fill_(1),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_dtype_that_a_kernel_refuses_though_only_the_layout_of_its_result_is_read(name):
    fn = UNREAD[name]
    for x in (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)):
        assert_same_call(observe(jit(fn), (x,)), observe(fn, (x,)), f"{name} {x.dtype}")


@pytest.mark.parametrize("fn", [torch.quantile, torch.Tensor.nanquantile])
def test_fractions_that_only_the_cpu_refuses(fn):
    def f(x, q):
        return fn(x, q)

    jitted = jit(f)
    for q in (0.5, -0.1):
        args = (torch.arange(5.0), torch.tensor(q))
        assert_same_call(observe(jitted, args), observe(f, args), str(q))


@pytest.mark.parametrize("dtype", [torch.int16, torch.bool])
@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_refused_as_in_eager(name, dtype):
    def used(x):
        return DTYPES[name](x)

    def called(x):
        return DTYPES[name](x)()

    for program in (used, unused(used), called):
        args = (torch.ones(2, 3, 4, dtype=dtype),)
        assert_same_call(observe(jit(program), args), observe(program, args), f"{name} {dtype}")


def between_writes(op):
    def program(w, x):
        w.add_(1)
        made = op(x)
        w.mul_(2)
        return made

    return program


def written(fn, *args):
    """What a refused call leaves in its first argument, and how many writes it counts."""
    with pytest.raises((RuntimeError, NotImplementedError)) as error:
        fn(*args)
    return str(error.value), args[0].tolist(), args[0]._version


@pytest.mark.parametrize("name", sorted(DTYPES.keys() - {"reflect", "replicate"}))
def test_writes_in_front_of_a_refused_call(name):
    program = between_writes(DTYPES[name])
    x = torch.ones(2, 3, 4, dtype=torch.int8)
    sides = [written(fn, torch.ones(2), x) for fn in (jit(program), program)]
    assert sides[0] == sides[1]


@pytest.mark.gpu
def test_draws_in_front_of_floats_that_a_gpu_refuses():
    def program(w, x):
        w.uniform_()
        return torch.cdist(x, x)

    x = torch.ones(2, 2, dtype=torch.bfloat16, device="cuda")
    sides = []
    for fn in (jit(program), program):
        torch.manual_seed(0)
        sides.append(written(fn, torch.ones(3, device="cuda"), x))
    assert sides[0] == sides[1]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CASES)
def test_refused_as_in_eager(name, dynamic):
    fn, shapes = CASES[name]
    for program in (fn, unused(fn)):
        jitted = jit(program, dynamic=dynamic)
        for shape in shapes:
            args = (torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape),)
            assert_same_call(observe(jitted, args), observe(program, args), f"{name} {shape}")


def test_parts_of_real_numbers_of_any_sizes():
    jitted = jit(lambda x: (torch.view_as_real(x + 1), None)[1])
    for n in (2, 3, 4):
        with pytest.raises(RuntimeError, match="only supported for complex"):
            jitted(torch.ones(n))


PLACES = {
    "more than dimensions": lambda x, i: x.index_put((i, i, i), x[0, 0]),
    "of a number": lambda x, i: x[0, 0].index_put_((i,), x[0, 0]),
    "fractions, and none of them": lambda x, i: x.index_put_((i[:0].double(),), x[0]),
    "a mask of another size": lambda x, i: x.index_put((torch.ones(1, dtype=torch.bool),), x[0]),
    "masks beyond": lambda x, i: x.index_put((i, x > 0), x[0, 0]),
    "filled at a matrix of them": lambda x, i: x[:0].index_fill_(1, i[None], 2),
    "filled at 32-bit ones": lambda x, i: x[:0].index_fill(1, i.int(), 2),
    "rows at fractions": lambda x, i: F.embedding(i[:0].float(), x),
    "between rows": lambda x, i: torch.bucketize(i, x),
    "fold of no ints": lambda x, i: x[:0].long().logcumsumexp(0),
    "half of no ints": lambda x, i: F.glu(x[:0].long()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PLACES)
def test_places_that_only_kernels_refuse(name, dynamic):
    """The first exception is the one that is caught."""
    call = PLACES[name]

    def fn(x, i):
        try:
            call(x, i)
            x.is_missing  # noqa: B018
        except (RuntimeError, IndexError) as error:
            return str(error)

    compiled = jit(fn, dynamic=dynamic)
    for rows in (2, 3):
        x, i = torch.ones(rows, 4), torch.tensor([0, 1])
        assert_same_call(observe(compiled, [x, i]), observe(fn, [x, i]), name)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.std().argmax(),
        lambda x: x.var().max(-1)[1],
        lambda x: x[:1].softmax(0).argmin(),
    ],
)
def test_ints_of_which_only_a_place_is_asked(fn):
    with pytest.raises(RuntimeError) as plain:
        fn(torch.arange(4))
    with pytest.raises(RuntimeError) as jitted:
        jit(fn)(torch.arange(4))
    assert str(jitted.value) == str(plain.value)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(
    "fn, x",
    [
        (lambda x: 1 if x else 2, torch.tensor(-1).view(torch.uint64)),
        (lambda x: torch.equal(x, x.clone()), torch.zeros(2, dtype=torch.complex32)),
    ],
)
def test_decisions_on_dtypes_that_eager_cannot_read(fn, x):
    assert_same_call(observe(jit(fn), [x]), observe(fn, [x]), "call")


@pytest.mark.filterwarnings("error::RuntimeWarning")  # "compiling it failed"
@pytest.mark.parametrize("name", ["cummax", "cummin", "sort", "cumsum"])
def test_a_dimension_that_a_number_lacks(name):
    """The formula of the gradient meets it while compiling, where the op's own shape function lets it pass."""
    with pytest.raises(IndexError):
        jit(lambda x: getattr(x, name)(1))(torch.ones((), requires_grad=True))
