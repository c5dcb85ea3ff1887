"""Strides of results over inputs that lie otherwise than fresh tensors: those of PyTorch.

A part of the op database, each op over inputs that are permuted, channels last, expanded, cut out or empty, recorded and run op by op.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit

pytest.importorskip("expecttest")  # which PyTorch's op database imports
from tests.ops.cases import op_db

NAMES = (
    "abs", "add", "amax", "argmin", "bmm", "cat", "clamp", "clone", "cumsum", "diff", "div.floor_rounding", "flip", "floor_divide",
    "gather", "index_fill", "index_select", "isin", "lerp", "masked_fill", "max_unpool2d", "mean", "mul",
    "mvlgamma.mvlgamma_p_1", "nn.functional.conv2d", "nn.functional.gelu", "nn.functional.interpolate.bilinear",
    "nn.functional.logsigmoid", "nn.functional.nll_loss", "nn.functional.pad.constant", "nn.functional.pad.reflect", "nn.functional.pad.replicate",
    "nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle", "nn.functional.prelu", "roll", "scatter", "softmax",
    "sort", "sum", "tril", "var", "where",
)  # fmt: skip
OPS = {op.full_name: op for op in op_db if op.full_name in NAMES}


def permuted(t):
    order = tuple(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order)


def channels_last(t):
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t


def expanded(t):
    return t.select(0, 0).unsqueeze(0).expand_as(t) if t.dim() and t.shape[0] else t


def cut_out(t):
    if t.dim() < 2:
        return t
    *batch, rows, columns = t.shape
    whole = torch.zeros(*batch, columns, 2 * rows + 1, dtype=t.dtype)
    view = whole[..., 1::2].transpose(-1, -2)
    return view.copy_(t)


def empty(t):
    return t[:0] if t.dim() else t


def of_one(t):
    """One row, which lies as a row of more."""
    return torch.cat([t, t], -1)[:1, ..., : t.shape[-1]] if t.dim() > 1 else t


LAYOUTS = [permuted, channels_last, expanded, cut_out, empty, of_one]


def relaid(value, how):
    if isinstance(value, torch.Tensor):
        return how(value)
    if isinstance(value, list | tuple):
        return type(value)([relaid(v, how) for v in value])
    return value


def leaves(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("how", LAYOUTS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("name", sorted(OPS))
def test_of_the_op_database(name, how):
    op, seen = OPS[name], set()
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 40):
        if (kind := (sample.input.dim() if isinstance(sample.input, torch.Tensor) else 0, len(sample.args))) in seen:  # fmt: skip
            continue
        seen.add(kind)

        call = op.op  # the database's own object would break the graph

        def fn(x, args, options=sample.kwargs):
            return call(x, *args, **options)

        given = relaid(sample.input, how), relaid(sample.args, how)
        try:
            wanted = leaves(fn(*given))
        except (RuntimeError, IndexError, ValueError):
            continue
        found = leaves(jit(fn, backend="eager")(*given))
        recorded = [layout for graph in _graphs(fn, given) for layout in graph]
        for a, b in zip(found, wanted, strict=True):
            assert (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())  # fmt: skip
        for said, real in recorded:
            assert said == real


def _graphs(fn, given):
    """What each graph says of its results, and what they are."""
    found = []

    def backend(module, examples):
        ends = module.graph.find_nodes(op="output")[0].args[0]
        said = [n.meta["val"].stride() for n in ends]

        def run(*inputs):
            made = module.forward(*inputs)
            found.append([(s, m.stride()) for s, m in zip(said, made, strict=True) if m.numel()])
            return made

        return run

    jit(fn, backend=backend)(*given)
    return found


X = torch.arange(100.0).reshape(2, 5, 2, 5)
NHWC = X.contiguous(memory_format=torch.channels_last)


XS = [NHWC, NHWC[:, ::2], X.permute(2, 0, 3, 1), NHWC[:0], X[:1, :, :1].expand(2, 5, 2, 5)]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("x", XS)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.roll(x, -1, 0),
        lambda x: torch.roll(x, 0, 1),
        lambda x: torch.roll(x, (1, 2), (0, -1)),
        lambda x: torch.roll(x, 3),
        lambda x: torch.floor_divide(x, torch.tensor(2.0)),
        lambda x: x // 2,
        lambda x: F.pixel_shuffle(x, 1),
        lambda x: torch.mvlgamma(x + 9, 1),
        lambda x: torch.isin(x, torch.tensor([1.0])),
        lambda x: F.logsigmoid(x),
        lambda x: x.index_fill(1, torch.tensor([0]), 1.0),
    ],
)
def test_compiled(fn, x, dynamic):
    as_eager(fn, x, dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("x", XS)
@pytest.mark.parametrize("mode", ["replicate", "reflect"])
def test_compiled_borders(mode, x, dynamic):
    as_eager(lambda x: F.pad(x, (1, -1, 1, 0), mode=mode), x, dynamic)


def as_eager(fn, x, dynamic):
    for given in (fn, lambda x: fn(x * 2) + 0):
        wanted, found = given(x), frameloom.jit(given, dynamic=dynamic)(x)
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted)
        windows = [t.as_strided((t.numel(),), (1,)) for t in (found, wanted) if t.numel()]
        if windows and wanted.untyped_storage().nbytes() == wanted.numel() * wanted.element_size():
            torch.testing.assert_close(*windows)


DRAWING = {
    "means": lambda x: torch.normal(x, 0.5),
    "deviations": lambda x: torch.normal(0.5, x),
    "both": lambda x: torch.normal(x, x),
    "poisson": lambda x: torch.poisson(x),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[1],
    "native_dropout's result": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "native_dropout of no use": lambda x: torch.native_dropout(x, 0.5, False)[0],
}


@pytest.mark.parametrize("name", DRAWING)
def test_drawn(name):
    """Also of nothing, and where sizes are 1."""
    fn = DRAWING[name]
    jitted = jit(fn)
    for x in (X.permute(2, 0, 3, 1), X[:0], X[:1, :1].permute(3, 1, 2, 0), XS[-1]):
        torch.manual_seed(0)
        wanted = fn(x)
        torch.manual_seed(0)
        found = jitted(x)
        assert (found.stride(), found.dtype) == (wanted.stride(), wanted.dtype)
        assert torch.equal(found, wanted)


def test_folds_of_nothing():
    """A dimension that is kept has no stride of 0."""
    for x in (torch.ones(5, 0), torch.ones(5, 0).t().contiguous().t()):
        found = jit(lambda x: (x.amin(0, keepdim=True), *torch.var_mean(x, 0, keepdim=True)))(x)
        wanted = x.amin(0, keepdim=True), *torch.var_mean(x, 0, keepdim=True)
        assert [t.stride() for t in found] == [t.stride() for t in wanted]


@pytest.mark.parametrize("shape", [(1, 4, 3, 2), (3, 1, 2, 5), (3, 4, 1, 1)])
def test_group_norm_of_one_image_or_channel(shape):
    x = torch.rand(shape).contiguous(memory_format=torch.channels_last).clone()
    assert jit(lambda x: F.group_norm(x, 1))(x).stride() == F.group_norm(x, 1).stride()


INDEX = torch.tensor([0])
LAID_OUT = {
    "clone": lambda x: x.index_fill(0, INDEX, 1.0),
    "clone of a part": lambda x: x.index_put((INDEX,), x[0]),
    "flip": lambda x: x.rot90(),
    "fresh": lambda x: x.index_add(0, INDEX, x[:1]),
    "fresh triangle": lambda x: x.tril(),
    "elementwise": lambda x: torch.complex(x, x),
    "number": lambda x: torch.xlogy(3, x),
    "zeros": lambda x: x.diag_embed(),
}


@pytest.mark.parametrize("name", LAID_OUT)
def test_sizes_of_1_with_odd_strides(name):
    for shape, strides in [((1, 3), (1, 1)), ((3, 1), (1, 5)), ((3, 1), (2, 9)), ((1, 1), (3, 2))]:
        recorded = _graphs(LAID_OUT[name], (torch.ones(12).as_strided(shape, strides),))
        for said, real in [layout for graph in recorded for layout in graph]:
            assert said == real, (shape, strides)


SAID_OTHERWISE = {
    "nansum": lambda x: (x.nansum(()), x.nansum((), keepdim=True)),
    "any": lambda x: (x.any(()), x.all((), keepdim=True)),
    "pow": lambda x: (2.0**x, 1**x),
}


@pytest.mark.parametrize("name", SAID_OTHERWISE)
def test_what_meta_kernels_say_otherwise(name):
    """Also where sizes vary."""
    fn = SAID_OTHERWISE[name]
    jitted = jit(fn)
    for x in (X[0, 0].t(), torch.ones(3, 5).t(), torch.ones(4, 2).t()):
        torch.testing.assert_close(jitted(x), fn(x), check_stride=True)


def at(shape, strides, dtype=torch.float32):
    """A tensor that lies so."""
    return (5 * torch.arange(500).sin()).to(dtype).as_strided(shape, strides)


# Sizes of 1 leave strides open, which PyTorch keeps or not.
OF_ONE = {
    "prelu": (lambda x: F.prelu(x, torch.ones(1)), at((3, 1, 4), (4, 100, 1))),
    "prelu of a part": (lambda x: F.prelu(x, torch.ones(1)), at((3, 1, 4), (14, 100, 2))),
    "abs of complex": (lambda x: x.abs(), at((1, 5), (20, 1), torch.complex64)),
    "isinf of nothing": (lambda x: torch.isinf(x), at((0, 1), (1, 1))),
    "isinf of ints": (lambda x: torch.isinf(x), at((3, 1), (1, 9), torch.int64)),
    "ldexp": (lambda x: torch.ldexp(x, torch.ones(1, 4, 1)), at((3, 1, 1), (7, 8, 9))),
    "rsub": (lambda x: torch.rsub(x, torch.ones(1, 4, 1)), at((3, 1, 1), (1, 5, 5))),
    "hstack": (lambda x: torch.hstack([x, x]), at((2, 1, 3, 4), (12, 1, 4, 1))),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3), at((3, 2, 3), (7, 1, 2))),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), at((1, 2, 3), (1, 3, 1))),
    "conv1d": (lambda x: F.conv1d(x, at((3, 3, 3), (9, 1, 3))), at((1, 3, 4), (12, 1, 3))),
    "aminmax": (lambda x: torch.aminmax(x, dim=1, keepdim=True)[0], at((1, 5, 0), (9, 5, 1))),
    "two dtypes": (lambda x: x + at((5, 1, 1), (1, 6, 7), torch.float64), at((5, 1, 1), (1, 1, 2))),
    "two dtypes, expanded": (lambda x: x.double() + x.float().expand(2, 3, 4), at((2, 3, 4), (1, 2, 6))[:1]),
    "two dtypes, one expanded": (
        lambda x: torch.minimum(x, at((1, 3, 1, 3), (3, 0, 3, 1), torch.uint8)), at((1, 3, 1, 3), (50, 3, 1, 1), torch.int32)
    ),
    "roll": (lambda x: x.roll(1, 0), at((3, 1, 4, 3), (12, 1, 3, 1))),
    "a library call in place": (lambda x: x.clone().add_(1), at((3, 1, 4), (4, 100, 1), torch.complex64)),
    "parts put back into nothing": (lambda x: x.select_scatter(x[0] * 2, 0, 0), at((2, 0, 3), (0, 1, 1))),
    "a diagonal put back into nothing": (lambda x: x.diagonal_scatter(x.diagonal() * 2), at((2, 0), (0, 1))),
    "in place": (lambda x: x.clone().digamma_(), at((1, 3, 1), (7, 1, 9))),
    "norm of one row": (lambda x: torch.linalg.vector_norm(x, 2, 0, True), at((1, 2), (1, 3))),
    "norm of columns of one": (lambda x: torch.linalg.vector_norm(x, 1, (1,), True), at((2, 1), (2, 6))),
    "norm of one complex number": (lambda x: torch.linalg.vector_norm(x, 2, -1), at((3, 1), (1, 7), torch.complex64)),
    "norm of complex numbers": (lambda x: torch.linalg.vector_norm(x, 1, (0, 1)), at((1, 1), (9, 7), torch.complex64)),
    "logits": (lambda x: F.binary_cross_entropy_with_logits(x, at((3, 1), (1, 7)), reduction="none"), at((3, 1), (1, 1))),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OF_ONE)
def test_sizes_of_one(name, dynamic):
    fn, x = OF_ONE[name]
    with torch.no_grad():
        wanted, found = fn(x), frameloom.jit(fn, dynamic=dynamic)(x)
    assert (found.stride(), found.dtype) == (wanted.stride(), wanted.dtype)
    torch.testing.assert_close(found, wanted)


ACTIVATIONS = [
    F.leaky_relu, F.elu, F.celu, F.selu, F.hardsigmoid, F.hardtanh, F.hardswish, F.gelu, F.silu, F.mish, F.softplus, F.relu6, F.softshrink,
    F.hardshrink, F.logsigmoid, F.softsign, F.tanhshrink,
]  # fmt: skip


@pytest.mark.parametrize(
    "shape, strides", [((4, 1, 1, 1), (1, 4, 4, 4)), ((3, 1, 1, 2), (2, 7, 7, 1))]
)
def test_activations_of_several_sizes_of_1(shape, strides):
    def fn(x):
        return [f(x).stride() for f in ACTIVATIONS]

    x = torch.ones(40).as_strided(shape, strides)
    assert frameloom.jit(fn)(x) == fn(x)


PARTS = {
    "two": lambda x: x[:, 1:] - x[:, :-1],
    "three": lambda x: torch.addcmul(x[:, 1:], x[:, 1:], x[:, :-1]),
    "rows": lambda x: torch.where(x[1:] > 0, x[1:], x[:-1]),
    "two dtypes": lambda x: torch.maximum(x[:, 1:].double(), x[:, :-1]),
    "diff": lambda x: x.diff(),
}


@pytest.mark.parametrize("first", [torch.ones(2, 5)[:, 1:4], torch.ones(3, 2).t()])
@pytest.mark.parametrize("fn", PARTS.values(), ids=PARTS)
def test_parts_that_lose_their_elements_where_sizes_vary(fn, first):
    jitted = jit(fn)
    for x in (first, torch.ones(1, 4).t(), torch.ones(3, 4).t(), torch.ones(4, 1).t()):
        torch.testing.assert_close(jitted(x), fn(x), check_stride=True)
