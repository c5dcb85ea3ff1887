"""Ops and layers on tensors whose sizes vary: two entries for all shapes (more where sizes of 1 show), and results as eager's, strides included."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import frameloom
from frameloom import jit
from tests.jit.sizes.test_dynamic_numbers import same

SHAPES = ((4, 6), (5, 9), (7, 4), (2, 17), (1, 8), (6, 1))


def rand(*shape):
    return torch.randn(*shape)


def rows(b, s):
    return (rand(b, s),)


def tokens(b, s):
    return (rand(b, s, 8),)


def signals(b, s):
    return (rand(b, 4, s + 4),)


def images(b, s):
    return (rand(b, 4, s + 4, s + 6),)


def pairs(b, s):
    return rand(b, s), torch.rand(b, s)


def heads(b, s):
    return tuple(rand(b, 4, s, 8) for _ in range(3))


def written(x):
    y = torch.zeros_like(x)
    y[:, : x.shape[1] // 2] = x[:, : x.shape[1] // 2]
    y[0] = 1.0
    y[:, -1].add_(2.0)
    return y


def rotated(x):
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1])[:, None] / 10000 ** (torch.arange(half) / half)
    c, s = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def positions(x):
    places = torch.arange(x.shape[1])[:, None] * torch.exp(torch.arange(0, 8, 2) * -1.0)
    table = torch.zeros(x.shape[1], 8)
    table[:, 0::2], table[:, 1::2] = places.sin(), places.cos()
    return x + table


def buckets(x):
    apart = (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])).clamp(min=0)
    far = (4 + (apart.float().clamp(min=1) / 4).log() * 2).long().clamp(max=7)
    return torch.where(apart < 4, apart, far) + x.sum()


def causal(q, k, v):
    mask = torch.ones(q.shape[2], q.shape[2]).tril().bool()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def windows(x):
    """Shifted windows of 4 x 4, as a Swin transformer has them."""
    b, h, w, c = x.shape
    parts = x.roll((-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3)
    mixed = parts.reshape(-1, 16, c).softmax(1)
    return mixed.view(b, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(b, h, w, c)


def patch_tokens(x):
    b, c, h, w = x.shape
    parts = x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return parts.reshape(b, (h // 2) * (w // 2), c * 4) * 2


def split_heads(x):
    b, s, width = x.shape
    return x.view(b, s, 4, width // 4).transpose(1, 2).reshape(b * 4, s, width // 4) + 1


LAYERS = {
    "gru": (nn.GRU(8, 16, batch_first=True), tokens, lambda y: y[0] + 1),
    "lstm": (nn.LSTM(8, 16, 2, bidirectional=True), tokens, lambda y: y[0] + 1),
    "rnn": (nn.RNN(8, 4), tokens, lambda y: y[0] + y[1]),
    "conv1d": (nn.Conv1d(4, 8, 3, padding=1), signals, F.relu),
    "conv2d": (nn.Conv2d(4, 8, 3, stride=2, padding=1), images, F.relu),
    "transposed": (nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1), images, F.relu),
    "group_norm": (nn.GroupNorm(2, 4), images, F.relu),
    "instance_norm": (nn.InstanceNorm2d(4), images, F.relu),
    "batch_norm": (nn.BatchNorm2d(4), images, F.relu),
}  # fmt: skip
OPS = {
    "chunk": (lambda x: [p + 1 for p in x.chunk(2, 1)], lambda b, s: (rand(b, 2 * s + 2),)),
    "split": (lambda x: [p * 2 for p in x.split([1, x.shape[1] - 1], 1)], lambda b, s: (rand(b, s + 1),)),
    "squeezed": (lambda x: x[:, None].squeeze(1) + x.sum(-1, keepdim=True), rows),
    "quantile": (lambda x: x.quantile(0.5, -1), rows),
    "written": (written, lambda b, s: (rand(b, s + 2),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), images),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), images),
    "resized": (lambda x: F.interpolate(x, size=(10, x.shape[2] * 2 + 1), mode="bicubic"), images),
    "halved": (lambda x: F.interpolate(x, scale_factor=0.5, mode="linear"), signals),
    "adaptive_avg": (lambda x: F.adaptive_avg_pool2d(x, 3) + 1, images),
    "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, 2) + 1, images),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True) + 1, images),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True) + 1, images),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2) + 1, signals),
    "unfold": (lambda x: F.fold(F.unfold(x, 3) * 2, x.shape[-2:], 3), images),
    "patches": (lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).reshape(x.shape[0], 4, -1, 4) + 1, images),
    "shuffled": (lambda x: F.pixel_shuffle(x, 2) + 1, images),
    "reflected": (lambda x: F.pad(x, (1, 2), mode="reflect") + 1, signals),
    "replicated": (lambda x: F.pad(x, (2, 1), mode="replicate") + 1, signals),
    "padded": (lambda x: F.pad(x, (0, -x.shape[1] % 8)) + 1, rows),
    "sampled": (lambda x: F.grid_sample(x, torch.zeros(x.shape[0], 3, 3, 2), align_corners=False), images),
    "distances": (lambda x, y: torch.cdist(x, y), lambda b, s: (rand(b, 3), rand(s, 3))),
    "stacked": (lambda x: torch.stack([x, x * 2], 1) + 1, rows),
    "tiled": (lambda x: x.tile(2, 1) + x.sum(0).expand_as(x).repeat(2, 1), rows),
    "gathered": (lambda x, i: x.gather(1, i) + 1, lambda b, s: (rand(b, s), torch.randint(0, s, (b, s)))),
    "scattered": (lambda x, i: torch.zeros(x.shape[0], 5).scatter_add(1, i, x), lambda b, s: (rand(b, s), torch.randint(0, 5, (b, s)))),
    "sorted": (lambda x: (x.sort(-1)[0] + 1, x.argsort(-1)), rows),
    "cumulative": (lambda x: x.cumsum(1) + x.cumsum(0) + x.cummax(1)[0], rows),
    "kth": (lambda x: x.kthvalue(1, -1)[0] + 1, rows),
    "searched": (lambda x: torch.searchsorted(torch.linspace(-2, 2, 9), x) + 1, rows),
    "grid": (lambda x: torch.stack(torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij"), -1) + 1, rows),
    "linspace": (lambda x: torch.linspace(0, 1, x.shape[1]) + x, rows),
    "complex": (lambda x: torch.view_as_real(torch.polar(x.abs(), x)) * 2, rows),
    "losses": (lambda x, y: F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.binary_cross_entropy_with_logits(x, y), pairs),
    "cross_entropy": (lambda x: F.cross_entropy(x.transpose(1, 2), x.argmax(-1), ignore_index=0), tokens),
    "gated": (lambda x: F.glu(x, -1), tokens),
    "causal": (causal, heads),
    "rotated": (rotated, tokens),
    "positions": (positions, tokens),
    "buckets": (buckets, tokens),
    "windows": (windows, lambda b, s: (rand(b, 4 * s, 8, 3),)),
    "patch_tokens": (patch_tokens, lambda b, s: (rand(b, 3, 2 * s, 4),)),
    "split_heads": (split_heads, lambda b, s: (rand(b + 1, s + 1, 4 * s + 8),)),
    "in_fours": (lambda x: x.reshape(4, -1).sum(0), lambda b, s: (rand(b, 4 * s),)),
    "means_of_fours": (lambda x: x.view(x.shape[0], -1, 4).mean(-1), lambda b, s: (rand(b, 4 * s),)),
    "shares": (lambda x: x.sum() / math.prod(x.shape) + sum(divmod(x.shape[1], 3)) + max(x.shape[0], 3), rows),
}  # fmt: skip


# PyTorch 2.11 asks its operand for the number of elements, which varies.
BREAKS = {"quantile"} if torch.torch_version.TorchVersion(torch.__version__) < (2, 13) else set()


@pytest.mark.parametrize("name", OPS)
@torch.no_grad()
def test_ops(name):
    fn, make = OPS[name]
    check(fn, make, breaks=name in BREAKS)


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_layers(name):
    layer, make, after = LAYERS[name]
    layer.eval()
    # How the results of recurrent layers lie shows which sizes are 1.
    check(lambda x: after(layer(x)), make, 4 if isinstance(layer, nn.RNNBase) else 3)


def check(fn, make, most=3, breaks=False):
    frameloom.reset()
    jitted = jit(fn)
    for shape in SHAPES:
        args = make(*shape)
        same(jitted(*args), fn(*args))
    assert frameloom.stats()["graphs"] <= most
    assert breaks or not frameloom.stats()["breaks"]


@torch.no_grad()
def test_layout_of_a_norm_of_what_is_transposed():
    norm = nn.BatchNorm1d(8).eval()
    check(lambda x: norm(x.transpose(1, 2)).relu(), tokens)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("sizes", [(6, 5, 4, 3), (3, 4, 9)])
def test_convolutions_of_images_laid_out_channels_last(groups, sizes):
    """Their results lie so, too, whatever their sizes."""
    layer = nn.Conv2d(6, 8, 3, groups=groups)
    compiled = jit(lambda x: layer(x))
    with torch.no_grad():
        for n in sizes:
            x = torch.randn(2, 6, n, n).contiguous(memory_format=torch.channels_last)
            same(compiled(x), layer(x))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "softmax"])
def test_results_along_a_dimension_lie_as_in_eager(name):
    jitted = jit(lambda x: getattr(x, name)(1))
    for rows in (3, 4, 6, 2):
        x = torch.linspace(-1, 1, rows * 20).view(5, 2, rows, 2).permute(3, 2, 1, 0)
        got, want = jitted(x), getattr(x, name)(1)
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_dtype_of_a_number_times_a_power_of_two(dtype):
    jitted = jit(lambda x, i: torch.ldexp(x, i), dynamic=True)
    for rows in (2, 3, 1):
        x, i = torch.ones(rows, 4).to(dtype), torch.arange(rows)[:, None]
        same(jitted(x, i), torch.ldexp(x, i))


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM, lambda *n: nn.RNN(*n, nonlinearity="relu")])  # fmt: skip
def test_packed_sequences_of_other_lengths(kind):
    layer = kind(3, 4)
    compiled = jit(lambda x: layer(x))
    with torch.no_grad():
        for lengths in ([5, 4, 2], [4, 3, 2], [6, 1, 1]):
            packed = pack_padded_sequence(torch.randn(max(lengths), 3, 3), lengths)
            same(compiled(packed)[0].data, layer(packed)[0].data)


def test_packed_sequences_by_name():
    layer = nn.GRU(3, 4)
    weights = layer._flat_weights

    def fn(x, sizes, h):
        return torch.gru(data=x, batch_sizes=sizes, hx=h, params=weights, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False)  # fmt: skip

    compiled = jit(fn)
    with torch.no_grad():
        for sizes in ([3, 3, 2], [3, 2, 2, 1], [3, 1]):
            given = torch.randn(sum(sizes), 3), torch.tensor(sizes), torch.zeros(1, 3, 4)
            same(compiled(*given)[0], fn(*given)[0])


BOUNDED = [lambda v: v[:2], lambda v: v[-1:], lambda v: v.new_ones(max(50, v.numel())), lambda v: v[: max(1, v.numel() // 2)]]  # fmt: skip
JOINED = [torch.block_diag, torch.kron, torch.cartesian_prod]


@pytest.mark.parametrize("op", JOINED)
@pytest.mark.parametrize("b", BOUNDED)
@pytest.mark.parametrize("a", BOUNDED)
def test_sizes_with_bounds_that_are_the_same_up_to_there(a, b, op):
    def fn(x, z):
        made = op(a(x.flatten()), b(z.flatten()))
        return made.shape, made.numel(), made

    jitted = jit(fn)
    for sizes in ((16, 9), (6, 1), (64, 45), (90, 3), (2, 2)):
        x, z = map(rand, sizes)
        same(jitted(x, z), fn(x, z))


@pytest.mark.parametrize("sizes", [(1, 2), (2, 2), (3, 4), (2, 1)])
@pytest.mark.parametrize("first", [2, -1, 0])
def test_strides_of_what_is_padded_by_a_number(first, sizes):
    def fn(x, n):
        y = F.pad(x, (0, n))
        return y, y.stride()

    jitted = jit(fn)
    for n in (first, -1, 0, -2, 1):
        if n + sizes[1] >= 0:
            x = rand(*sizes)
            same(jitted(x, n), fn(x, n))
