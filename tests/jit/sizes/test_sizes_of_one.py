"""Sizes of 1 are served by the entry for all, where PyTorch's layouts say nothing else; and ops without a rule are told from trials."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from frameloom import jit

SHAPES = [(4, 9), (3, 7), (1, 5), (6, 1), (1, 1), (5, 12), (2, 30), (7, 2)]
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True).eval()
LAYER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()


def heads(x):
    return x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)


def written_attention(x):
    b, s, d = x.shape
    q = k = v = heads(x)
    weights = q @ k.transpose(-1, -2) / 2
    later = torch.ones(s, s, dtype=torch.bool).triu(1)
    return (weights.masked_fill(later, -torch.inf).softmax(-1) @ v).transpose(1, 2).reshape(b, s, d)


def rotated(x):
    angles = torch.arange(x.shape[1]).float()[:, None] / 10 ** torch.arange(0, 8, 2)
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def flat(x):
    return x.flatten(1)


PROGRAMS = {
    "rms_norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "group_norm": lambda x: F.group_norm(x[:, None, :, :], 1),
    "swiglu": lambda x: F.silu(x[..., :4]) * x[..., 4:],
    "rows": lambda x: x.reshape(-1, 8) * 2,
    "flat": lambda x: flat(x) * 2,
    "strided": lambda x: x[:, :, ::2] + 1,
    "written_attention": written_attention,
    "sdpa": lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x)),
    "causal": lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
    "rotated": rotated,
    "multihead": lambda x: ATTENTION(x, x, x)[0],
    "multihead_weights": lambda x: ATTENTION(x, x, x, need_weights=True),
    "layer": lambda x: LAYER(x),
    # without rules
    "mv": lambda x: flat(x) @ flat(x)[0],
    "dot": lambda x: flat(x)[0] @ flat(x)[0],
    "bilinear": lambda x: F.bilinear(x, x, torch.ones(3, 8, 8)),
    "rot90": lambda x: flat(x).rot90(),
    "diag_embed": lambda x: x.diag_embed(),
    "searchsorted": lambda x: torch.searchsorted(x.sort(-1).values, x),
    "histc": lambda x: x.histc(5),
    "cross": lambda x: torch.linalg.cross(x[..., :3], x[..., 3:6]),
    "inv": lambda x: torch.linalg.inv(x @ x.mT + torch.eye(x.shape[1])),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "isin": lambda x: torch.isin(x.mul(3).long(), torch.tensor([1, 2])),
    "block_diag": lambda x: torch.block_diag(x[0], x[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@torch.no_grad()
def test_two_graphs_serve_all_sizes(name):
    frameloom.reset()
    fn = PROGRAMS[name]
    jitted = jit(fn)
    for b, s in SHAPES:
        x = torch.rand(b, s, 8)
        found, want = jitted(x), fn(x)
        torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-4)
        if isinstance(want, torch.Tensor):
            assert found.stride() == want.stride(), (b, s)
    assert frameloom.stats()["graphs"] <= 2


@torch.no_grad()
def test_strides_that_are_equal_for_some_sizes():
    def fn(x):
        return x[:, ::2] + 1

    for shapes in ([(4, 9), (3, 7), (7, 2), (6, 1)], [(4, 9), (7, 2), (5, 2)]):
        jitted = jit(fn)
        for shape in shapes:
            x = torch.rand(shape)
            assert jitted(x).stride() == fn(x).stride(), shape


@torch.no_grad()
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, one: (one.expand_as(x), x * 2),
        lambda x, one: (x.t().view(x.shape[1], 1, x.shape[0]), x * 2),
        lambda x, one: (x.t().renorm(2, 0, 1.0),),
    ],
)
def test_strides_of_views_where_a_size_is_1(fn):
    jitted = jit(fn)
    for shape in [(2, 3), (4, 5), (1, 1), (6, 1), (1, 7)]:
        x, one = torch.rand(shape), torch.ones(1)
        assert [t.stride() for t in jitted(x, one)] == [t.stride() for t in fn(x, one)], shape


@torch.no_grad()
@pytest.mark.parametrize("fn", [lambda x: x + x[:, :1], lambda x: x.flip(0)])
def test_strides_of_odd_dimensions_of_size_1(fn):
    jitted = jit(fn)
    for shape, strides in (((4, 5), (1, 4)), ((2, 3), (1, 2)), ((5, 1), (1, 5)), ((3, 1), (1, 9)), ((1, 1), (5, 7))):  # fmt: skip
        x = torch.rand(50).as_strided(shape, strides)
        assert jitted(x).stride() == fn(x).stride(), (shape, strides)


@torch.no_grad()
def test_an_int_that_a_tensor_is_compared_with():
    frameloom.reset()
    x = torch.randint(0, 20, (24,))
    equal, other = jit(lambda n: (x == n).sum()), jit(lambda n: (x != n) * x)
    for n in (5, 3, 8, 1, 0, 12):
        assert torch.equal(equal(n), (x == n).sum())
        assert torch.equal(other(n), (x != n) * x)
    assert frameloom.stats()["graphs"] == 4


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (0, 2, 3, 1), (1, 2, 3, 0)])
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_keeps_the_order_of_channels_last_alone(order, training):
    statistics = torch.rand(2, 4)

    def fn(x):
        mean, variance = statistics.clone()
        return F.batch_norm(x, mean, variance, training=training)

    x = torch.rand([(3, 4, 5, 6)[d] for d in order]).permute([order.index(d) for d in range(len(order))])  # fmt: skip
    mine, own = x.detach().requires_grad_(), x.detach().requires_grad_()
    found, want = jit(fn)(mine), fn(own)
    torch.testing.assert_close(found, want)
    assert found.stride() == want.stride()
    weights = torch.rand(found.shape)
    gradients = [torch.autograd.grad((y * weights).sum(), z)[0] for y, z in ((found, mine), (want, own))]  # fmt: skip
    torch.testing.assert_close(*gradients)
    assert gradients[0].stride() == gradients[1].stride()


@torch.no_grad()
def test_rows_with_gaps():
    frameloom.reset()
    jitted = jit(lambda x: x.sin() * 2)
    for b, s in ((2, 3), (4, 5), (7, 2), (1, 9), (3, 1), (1, 1), (64, 3), (0, 5), (4, 0)):
        x = torch.rand(b, 2 * s)[:, ::2]
        assert jitted(x).stride() == (x.sin() * 2).stride(), (b, s)
    assert frameloom.stats()["graphs"] == 2


@torch.no_grad()
@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (2, 1, 0)])
def test_strides_of_dimensions_of_size_1_are_eagers(order):
    def fn(x):
        return x.sin() * 2

    jitted = jit(fn)
    for shape in ((4, 6, 8), (6, 4, 2), (4, 2, 6), (2, 4, 6), (2, 2, 2), (2, 8, 2), (8, 2, 2), (2, 2, 8)):  # fmt: skip
        x = torch.rand(shape)[::2, 1:].permute(order)
        assert jitted(x).stride() == fn(x).stride(), x.shape


@torch.no_grad()
def test_a_view_beside_what_the_program_gets():
    def fn(x):
        keys = x[:, None] * 2
        both = keys[:, :, None].expand(-1, -1, 2, -1, -1).reshape(x.shape[0], 2, x.shape[1], 8)
        return keys, F.linear(both.transpose(1, 2).reshape(-1, 16), torch.ones(3, 16))

    frameloom.reset()
    jitted = jit(fn)
    for b, s in SHAPES:
        x = torch.rand(b, s, 8)
        for found, want in zip(jitted(x), fn(x), strict=True):
            torch.testing.assert_close(found, want)
            assert found.stride() == want.stride(), (b, s)
    assert frameloom.stats()["graphs"] <= 2


def how_it_lies(x):
    return 1 if x.is_contiguous() else torch.lerp(torch.ones(7), torch.ones(6), 0)


def test_what_the_program_asks_about_a_layout_is_a_condition():
    """Also where no tensor comes of it: strides of 0 and 1 are told apart."""
    jitted = jit(how_it_lies)
    assert jitted(torch.ones(3, 2)) == 1
    with pytest.raises(RuntimeError, match="must match"):
        jitted(torch.ones(3, 1).expand(3, 3))
    assert jitted(torch.ones(6, 2)) == jitted(torch.ones(5, 4)) == 1


def first_set(x, y):
    y[0] = x.numel()
    return y + 1


def test_a_stride_of_0_is_not_that_of_a_fresh_tensor():
    """Also where it varies, and was found to be 0 before."""
    jitted = jit(first_set, dynamic=True)
    for step, n, size in ((2, 2, 2), (1, 1, 2), (1, 3, 3)):
        x = torch.ones(4)[::step]
        want = first_set(x, torch.ones(n).expand(size))
        torch.testing.assert_close(jitted(x, torch.ones(n).expand(size)), want)


def test_results_of_an_expanded_tensor_lie_as_in_eager():
    jitted = jit(lambda x: x + 1, dynamic=True)
    for x in (
        torch.ones(9, 8, 8)[::4, ::4, ::4],
        torch.ones(2, 2).expand(2, 2, 2),
        torch.ones(3, 5).expand(4, 3, 5),
    ):
        assert jitted(x).stride() == (x + 1).stride()


def test_trials_of_what_writes_random_numbers_draw_none():
    jitted = jit(lambda x: x.bernoulli_(0.5), dynamic=True)
    torch.manual_seed(0)
    want, state = torch.empty(3, 4).t().bernoulli_(0.5), torch.get_rng_state()
    torch.manual_seed(0)
    assert torch.equal(jitted(torch.empty(3, 4).t()), want)
    assert torch.equal(torch.get_rng_state(), state)


def test_strides_of_an_expanded_number():
    jitted = jit(lambda x, y: x.expand(y.shape[0], 1), dynamic=True)
    assert jitted(torch.tensor(1.0), torch.ones(3)).stride() == (0, 0)


def test_an_expanded_result_where_nothing_is_expanded():
    def program(x, y):
        return x * 2, x[:, None].expand(-1, y.shape[0])

    jitted = jit(program, dynamic=True)
    x = torch.ones(3, 2)[:, 0]
    for n in (4, 1):
        assert jitted(x, torch.ones(n))[1].stride() == program(x, torch.ones(n))[1].stride()


def test_slices_of_which_one_element_is_left():
    """What is left is a sum with an extreme in it, to which no symbol gives way until the extreme is known."""

    def f(x, y):
        return y[2:] * x[2:], (y[1:] - y[:-1])[1:] + x[2:]

    g = jit(f, dynamic=True)
    for sizes in ((5, 3), (6, 3), (5, 5), (3, 5)):
        x, y = map(torch.arange, map(float, sizes))
        for given, wanted in zip(g(x, y), f(x, y), strict=True):
            assert torch.equal(given, wanted)


def test_padding_by_nothing():
    jitted = jit(lambda x: (F.pad(x, (0, 0)), x * 2), dynamic=True)
    x = torch.ones(1, 4).t()
    assert jitted(x)[0].stride() == F.pad(x, (0, 0)).stride()


@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 2, 1), (3, 1, 2)])
def test_slices_that_leave_nothing(shape):
    """A dimension of size 0 goes before one of size 1."""
    jitted = jit(lambda x: x[1:] * 2, dynamic=True)
    x = torch.ones(shape)
    assert jitted(x).stride() == (x[1:] * 2).stride()


MADE = {
    "a sum of two dtypes": lambda x: x.float() + x,
    "a function": lambda x: x.exp(),
    "a transposed copy": lambda x: x.transpose(0, 1).contiguous(),
    "another shape": lambda x: x.reshape(-1, x.shape[-1]),
    "bounded": lambda x: x.clamp(x, x.exp()),
}


@pytest.mark.parametrize(
    "ask", [lambda t: t.stride(), lambda t: t.stride(0), lambda t: t.is_contiguous()]
)
@pytest.mark.parametrize("name", MADE)
def test_a_layout_that_is_only_asked_for(name, ask):
    """It shows as that of a result does."""

    def fn(x):
        return ask(MADE[name](x)), x + 1

    jitted = frameloom.jit(fn)
    for shape in ((3, 4, 5), (4, 5, 3), (1, 4, 3), (3, 1, 4), (4, 3, 1), (3, 1, 1)):
        x = torch.ones(15, dtype=torch.float64).as_strided(shape, (1, 1, 1))
        assert jitted(x)[0] == fn(x)[0]


def test_copysign_of_what_is_expanded():
    """Its result has the shape that both operands have together."""
    jitted = frameloom.jit(lambda x, y: x.copysign(y))
    for a, b in [((5, 10, 5), (10, 5)), ((10, 1, 5), (1, 10, 5)), ((4, 1, 5), (1, 10, 5))]:
        x, y = torch.ones(a), -torch.ones(b)
        found, wanted = jitted(x, y), x.copysign(y)
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()
