"""Strides where sizes vary and come to 0 and 1, in results, views of results, and gradients: eager's, in every call."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit
from tests.fuzz.support import tensor
from tests.sweeps.images import sweep_images
from tests.sweeps.strides import sweep_strides

INT, FLOAT, DOUBLE = "int16", "float32", "float64"
# A program, and what its arguments are in each call: shape, dtype, layout.
CASES = {
    "nothing, times a number": (
        lambda x: x[1:] * 2,
        [[([1, 2], INT, "stepped")], [([1, 1], INT, "plain")]],
    ),
    "a product of nothing": (
        lambda x: x[1:] @ x[1:].t(),
        [[([n, 8], FLOAT, "plain")] for n in (5, 4, 1)],
    ),
    "products of nothing": (
        lambda x: torch.bmm(x[None, 1:], x[None, 1:].mT),
        [[([n, 8], FLOAT, "plain")] for n in (5, 4, 1)],
    ),
    "attention of no queries": (
        lambda x: F.scaled_dot_product_attention(x[None, None, 1:], x[None, None], x[None, None]),
        [[([n, 8], FLOAT, "plain")] for n in (5, 4, 1)],
    ),
    "attention to no keys": (
        lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None, 1:], x[None, None, 1:]),
        [[([n, 8], FLOAT, "plain")] for n in (5, 4, 1)],
    ),
    "a view of what is made": (
        lambda x: x.clone()[None],
        [[([3], FLOAT, "column")], [([1], FLOAT, "column")], [([4], FLOAT, "column")]],
    ),
    "a size that a question settles": (
        lambda x: x[..., ::2].abs() * 1,
        [[([3, 2, 2], FLOAT, "transposed")], [([1, 2, 2], FLOAT, "column")], [([3, 3, 1], FLOAT, "expanded")]],
    ),
    "ints to floats": (
        lambda x: x.movedim(0, -1).sin()[..., ::2],
        [[([3, 1], INT, "stepped")], [([1, 3], INT, "stepped")], [([3, 1], INT, "stepped")]],
    ),
    "dtypes of where": (
        lambda x, y, z: torch.where(x > 0, y, z),
        [[([1, 2], FLOAT, "stepped"), ([1, 1, 2], FLOAT, "overlapping"), ([1, 1, 2], DOUBLE, "expanded")]],
    ),
    "a loss": (
        lambda x, y: F.mse_loss(x, y, reduction="none"),
        [[([1, 2, 2], FLOAT, "overlapping"), ([1, 2, 2], FLOAT, "stepped")]],
    ),
    "a view of nothing": (
        lambda x: x[..., 1:].relu().view(x.shape[0], 1, 0),
        [[([2, 1, 1], FLOAT, "plain")], [([3, 1, 1], FLOAT, "plain")]],
    ),
    "rows of what overlaps": (
        lambda x: x[torch.tensor([0, 0])],
        [[([n, 2, m], FLOAT, "overlapping")] for n, m in ((1, 2), (2, 1), (2, 3))],
    ),
    "dropped dimensions": (
        lambda x: x[..., 1:].double().narrow(0, 0, 1),
        [[(shape, FLOAT, "plain")] for shape in ([3, 3], [2, 4], [1, 3])],
    ),
    "clamped": (
        lambda x, y, z: x.clamp(y, z),
        [[([2, 1], FLOAT, "transposed"), ([2, 1], FLOAT, "expanded"), ([2, 1], FLOAT, "plain")]],
    ),
    "a gradient of a product": (
        lambda x, y: (x.double() * y).t(),
        [[(shape, FLOAT, lies), (shape, DOUBLE, other)]
         for shape, lies, other in (([3, 2], "stepped", "transposed"), ([2, 2], "transposed", "plain"), ([2, 1], "inner", "stepped"))],
    ),
    "a gradient of a square": (
        lambda x: x * x,
        [[(shape, FLOAT, "transposed")] for shape in ([3, 3], [2, 1], [3, 1])],
    ),
    "a gradient that is handed on": (
        lambda x: x.cumsum(0),
        [[(shape, FLOAT, "inner")] for shape in ([3, 2], [1, 3], [2, 3])],
    ),
    "compared with another rank": (
        lambda x, y: F.pad(x[0, ..., ::2], (1, 0)) == y,
        [[([1, 1, 2], FLOAT, "plain"), ([2, 1, 2], FLOAT, "transposed")], [([1, 1, 2], FLOAT, "plain"), ([3, 1, 2], FLOAT, "transposed")]],
    ),
    "a view where strides fit": (
        lambda x: x.reshape(-1),
        [[([2, 3], FLOAT, "transposed")], [([3, 2], FLOAT, "stepped")], [([2, 2], FLOAT, "column")]],
    ),
    "a size of 1 beside a known one": (
        lambda x, y: torch.lerp(x[..., ::2], y, 0.5),
        [[([3, 3], FLOAT, "plain"), ([3, 2], FLOAT, "plain")], [([2, 2], FLOAT, "transposed"), ([2, 1], FLOAT, "plain")]],
    ),
    "a product that may be folded": (
        lambda x, y: x.narrow(0, 0, 1) @ y.transpose(-1, -2),
        [[(shape, FLOAT, "plain"), (other, FLOAT, "expanded")] for shape, other in (([3, 2, 3], [3, 2, 3]), ([2, 3, 3], [2, 3, 3]), ([2, 1, 2], [2, 2, 2]))],
    ),
    "a gradient of what is written": (
        lambda x: ((y := x * 1).__setitem__(0, 1.5), y + 1)[1],
        [[(shape, FLOAT, "transposed")] for shape in ([1, 4, 1], [3, 4, 3], [1, 4, 1])],
    ),
    "a gradient of a sum": (
        lambda x: x.sum(-1, keepdim=True),
        [[(shape, FLOAT, "plain")] for shape in ([3, 3], [2, 2], [2, 1])],
    ),
}  # fmt: skip


def strides(fn, given, expanded):
    leaves, args = [], []
    for k, (shape, dtype, layout) in enumerate(given):
        made = tensor(shape, dtype, k, layout)
        if made.is_floating_point():
            leaves.append(made.requires_grad_())
            made = made * 1 if layout == "plain" else made
            if made.grad_fn is not None:
                made.retain_grad()
                leaves.append(made)
        args.append(made)
    result = fn(*args)
    if result.requires_grad:
        seed = torch.ones((), dtype=result.dtype).expand(result.shape)
        result.backward(seed if expanded else seed.contiguous())
    return result.shape, result.stride(), [t.grad.stride() for t in leaves if t.grad is not None]


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CASES)
def test_they_are_eagers(name, dynamic, expanded):
    fn, calls = CASES[name]
    frameloom.reset()
    jitted = jit(fn, dynamic=dynamic)
    for given in calls:
        assert strides(jitted, given, expanded) == strides(fn, given, expanded)


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "mode"])
def test_a_reduction_of_nothing_is_refused(name):
    with pytest.raises(IndexError, match="non-zero size"):
        jit(lambda x: getattr(x, name)(0))(torch.zeros(0, 0, 3))


def test_sizes_of_1_whose_layouts_do_not_show_have_no_entry_of_their_own():
    def fn(x, weight):
        y = (x.transpose(0, 1) * 2).contiguous().transpose(0, 1)
        return y @ weight

    frameloom.reset()
    jitted, weight = jit(fn), torch.rand(4, 4)
    for shape in ((3, 5, 4), (2, 7, 4), (1, 6, 4), (5, 1, 4), (1, 1, 4)):
        x = torch.rand(shape)
        assert jitted(x, weight).stride() == fn(x, weight).stride()
    assert frameloom.stats()["graphs"] == 2


def test_some_programs_of_the_sweep():
    assert not [*sweep_strides(range(40)), *sweep_images(range(40))]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ["pool", "pad", "shuffle", "batch_norm", "mT"])
def test_memory_formats_are_those_that_strides_suggest(name, dynamic):
    """Of images with sizes of 1 this is not the format in which they are contiguous."""
    fn = {
        "pool": lambda x: F.avg_pool1d(x[0, 0].t()[None], 2),
        "pad": lambda x: F.pad(x, (1, 1)),
        "shuffle": lambda x: F.pixel_shuffle(x[:1], 1),
        "batch_norm": lambda x: F.batch_norm(x[:1], x[0, :, 0, 0], x[0, :, 0, 0].abs()),
        "mT": lambda x: x.contiguous(memory_format=torch.channels_last).mT * 2,
    }[name]
    shapes = (2, 3, 4, 5), (1, 3, 1, 3), (1, 3, 3, 1), (3, 1, 3, 1), (1, 1, 3, 1)
    for order in (0, 1, 2, 3), (3, 2, 1, 0), (0, 3, 1, 2):
        frameloom.reset()
        jitted = jit(fn, dynamic=dynamic)
        for shape in shapes:
            x = torch.rand([shape[d] for d in order])
            x = x.permute([order.index(d) for d in range(4)])
            try:
                wanted = fn(x).stride()
            except RuntimeError:
                continue
            assert jitted(x).stride() == wanted, (shape, order)


def test_complex_numbers_of_parts_that_are_expanded():
    """The order of dimensions is that of the part which tells one."""
    frameloom.reset()
    jitted, rows = jit(lambda a, b: torch.complex(a, b), dynamic=True), torch.rand(1, 4)
    for shape, strides in ((3, 4), (4, 1)), ((3, 4), (6, 1)), ((3, 4), (1, 1)), ((3, 4), (1, 3)):
        part = torch.rand(24).as_strided(shape, strides)
        assert jitted(rows, part).stride() == torch.complex(rows, part).stride()


def test_gradients_of_what_is_padded():
    """A part of the result's gradient, which is copied as it lies: with its gaps, where one size is 1."""

    def fn(x):
        return F.pad(x[:, None], (1, 1)) * 1

    jitted = jit(fn)
    for rows, columns in (1, 4), (1, 3), (2, 3), (1, 3):
        found = []
        for side in (jitted, fn):
            x = torch.ones(rows, columns + 2)[:, 1:-1].requires_grad_()
            found += torch.autograd.grad(side(x).sum(), x)
        assert found[0].stride() == found[1].stride()


# Of images of two sizes, one of which an intermediate may not have any more.
NOT_EMPTY = {
    "avg_pool1d": lambda x: F.avg_pool1d(x.mT.flatten(2), 1),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 1),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] * 2, x.shape[3])),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x, tuple(x.shape[1:])),
    "unfold": lambda x: F.unfold(x, 1),
    "fold": lambda x: F.fold(x.flatten(2), x.shape[2:], 1),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:frameloom")  # some run plainly where gradients are needed
@pytest.mark.parametrize("name", NOT_EMPTY)
def test_what_kernels_refuse_of_images_without_elements(name, dim, grad):
    fn = NOT_EMPTY[name]

    def program(x):
        return fn(x.narrow(dim, 1, x.shape[dim] - 1))

    def outcome(side, left, n):
        shape = (2, *(left + 1 if d == dim else n for d in (1, 2, 3)))
        try:
            return side(torch.ones(shape, requires_grad=grad)).shape
        except RuntimeError:
            return "refused"

    for dynamic in (None, True):
        jitted = jit(program, dynamic=dynamic, backend="eager")
        for left, n in ((4, 4), (3, 3), (0, 2))[0 if dynamic else 2 :]:
            assert outcome(jitted, left, n) == outcome(program, left, n)


EMPTY = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 1), (1, 0, 3)),
    "conv1d": (lambda x: F.conv1d(x, x.new_ones(2, x.shape[1], 1)), (1, 3, 0)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_windows_of_nothing_are_refused(name):
    fn, shape = EMPTY[name]
    for x in torch.ones(shape), torch.ones(shape, dtype=torch.int64):
        for side in (fn, jit(fn), jit(fn, dynamic=True)):
            with pytest.raises(RuntimeError):
                side(x)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizing_nothing_is_refused(mode):
    """The decompositions that stand for its meta kernels do not."""
    jitted = jit(lambda x: F.interpolate(x[..., 1:], scale_factor=2.0, mode=mode), dynamic=True)
    for size in 3, 1:
        x = torch.rand(1, 1, size)
        with pytest.raises(RuntimeError, match="greater than 0") if size == 1 else nullcontext():
            assert jitted(x).shape == (1, 1, 4)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: torch.einsum("ij,kj->ik", x, y),
        lambda x, y: torch.einsum("ij,kj->ki", x, y),
        lambda x, y: torch.kron(x, y),
        lambda x, y: torch.inner(x, y),  # of single rows a `dot`
    ],
)
@pytest.mark.parametrize("shape", [(1, 3, 1), (3, 1, 3), (1, 3, 3), (3, 1, 1)])
def test_gradients_of_what_ends_in_a_view_that_only_its_function_sees(fn, shape):
    n, m, k = shape
    strides = []
    for f in (fn, frameloom.jit(fn, dynamic=True)):
        f(torch.ones(2, 2), torch.ones(4, 2))
        x, y = torch.ones(n, m).requires_grad_(), torch.ones(k, m).requires_grad_()
        f(x, y).sum().backward()
        strides.append((x.grad.stride(), y.grad.stride()))
    assert strides[0] == strides[1]


PRODUCTS = {
    "einsum": lambda x, y, w: torch.einsum("ij,kj->ik", x * w.sum(), y),
    "tensordot": lambda x, y, w: torch.tensordot(x * w.sum(), y, dims=([1], [1])),
    "bilinear": lambda x, y, w: torch.einsum("ij,ij->i", x * w.sum(), x),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_gradients_of_products_whose_factor_is_known_before_any_size(name, dynamic):
    fn, w = PRODUCTS[name], torch.ones(3, 3).requires_grad_()
    jitted = jit(fn, dynamic=dynamic)
    for rows, columns, others in ((4, 3, 4), (1, 4, 1), (1, 4, 4), (4, 4, 1)):
        seen = []
        for side in (jitted, fn):
            x, y = torch.rand(rows, columns).requires_grad_(), torch.rand(others, columns)
            x.grad = w.grad = None
            side(x, y, w).sum().backward()
            seen.append((x.grad.stride(), w.grad.stride()))
        assert seen[0] == seen[1]


def test_copies_beside_a_part_from_a_negative_number():
    """Trials of other sizes are made for the number of the call."""

    def fn(x, n):
        x[n:1]
        return x.clone().clone()

    jitted = jit(fn)
    for x, n in ((torch.zeros(2, 1).t(), 2), (torch.zeros(2, 2)[::2, ::2], -2)):
        assert jitted(x, n).stride() == fn(x, n).stride()
