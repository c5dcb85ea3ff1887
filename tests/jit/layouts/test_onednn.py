"""What the CPU computes by oneDNN: the same results as eager, for the products and convolutions that it is faster for."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.backend import onednn
from frameloom.ir.lower.layout.channels_last import is_channels_last
from frameloom.ir.lower.layout.onednn import LINEAR
from frameloom.ir.program import Extern, Kernel
from tests.helpers import check

pytestmark = [
    pytest.mark.skipif(not onednn._is_there(), reason="PyTorch without oneDNN"),
    pytest.mark.compiled,
]
SEED = torch.Generator().manual_seed(0)
X, W, B = (torch.randn(*s, generator=SEED) for s in ((128, 160), (192, 160), (192,)))


@pytest.fixture(autouse=True)
def _faster(monkeypatch):
    monkeypatch.setattr(onednn, "_multiplies_faster", lambda: True)


def calls(fn, *args):
    report = check(fn, *args, graphs=1, rtol=1e-4, atol=1e-4)
    return [c for c in report.graphs[0].library_calls if c.startswith(("mkldnn", "aten.mm", "aten.addmm"))]  # fmt: skip


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b: F.linear(x, w, b),
        lambda x, w, b: F.linear(x, w).relu() + b,
        lambda x, w, b: torch.addmm(b, x, w.t().contiguous()),
        lambda x, w, b: torch.addmm(b[None], x, w.t()),
        lambda x, w, b: F.linear(x.view(2, 64, 160), w, b).transpose(1, 2),
        lambda x, w, b: F.linear(x, w.repeat(2, 1)[96:288], b),
        lambda x, w, b: (y := F.linear(x, w, b), y.view(-1), y.t() + 1),
    ],
    ids=range(7),
)
def test_products(fn):
    assert calls(fn, X, W, B) == [LINEAR]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b: F.linear(x[:1], w, b),
        lambda x, w, b: F.linear(x[:, :8], w[:, :8], b),
        lambda x, w, b: F.linear(x.double(), w.double(), b.double()),
        lambda x, w, b: torch.addmm(b, x, w.t(), alpha=2),
        lambda x, w, b: torch.addmm(b.expand(128, 192), x, w.t()),
        lambda x, w, b: F.linear(x, w[:1].expand(192, 160), b),
        lambda x, w, b: F.linear(x, w.repeat(1, 2)[:, ::2], b),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_stays_as_it_is(fn):
    assert LINEAR not in calls(fn, X, W, B)


def test_numbers_that_are_no_numbers():
    x = X.clone()
    x[3, 4], x[5, 6] = float("nan"), float("inf")
    assert calls(lambda x, w, b: F.linear(x, w, b), x, W, B) == [LINEAR]


def test_oneDNN_can_be_turned_off():
    with torch.backends.mkldnn.flags(enabled=False):
        assert onednn.onednn() == onednn.OneDnn()
        assert calls(lambda x, w, b: F.linear(x, w, b), X, W, B) == ["aten.addmm.default"]


def test_which_is_faster_is_found_out_once(monkeypatch, tmp_path):
    from frameloom.runtime.build.cache import DiskCache

    monkeypatch.undo()
    cache, measured = DiskCache(tmp_path, 1 << 20), []
    monkeypatch.setattr(onednn, "shared_cache", lambda: cache)
    monkeypatch.setattr(onednn, "_measured", lambda: bool(measured.append(1)) or True)
    uncached = onednn._multiplies_faster.__wrapped__
    assert uncached() is uncached() is True and len(measured) == 1
    monkeypatch.setattr(onednn, "_processor", lambda: "another")
    assert uncached() is True and len(measured) == 2


def test_the_measurement_leaves_no_trace():
    state = torch.get_rng_state()
    assert isinstance(onednn._measured(), bool)
    assert torch.equal(torch.get_rng_state(), state)


CONVOLUTION = "aten.convolution.default"
IMAGE = torch.randn(1, 3, 64, 64, generator=SEED)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64)
        self.pixels = torch.nn.Conv2d(64, 32, 1)
        self.deep = torch.nn.Conv2d(32, 32, 5, 2, padding=2, groups=32, bias=False)
        self.heavy = torch.nn.Conv2d(32, 128, 7, stride=16)
        self.up = torch.nn.ConvTranspose2d(128, 8, 2, stride=2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 1)
        y = self.pixels(x)
        z = F.hardswish(self.deep(y)) * torch.sigmoid(y.mean((2, 3), keepdim=True))
        return y, y.flatten(2).transpose(1, 2) + 1, self.up(self.heavy(z)), z[:, ::2]


@pytest.mark.parametrize("training", [False, True])
def test_convolutions_get_channels_last_tensors(training):
    """Not where the weight is what is heavy; those of single pixels are products."""
    report = check(Net().train(training), IMAGE, graphs=1, rtol=1e-4, atol=1e-4)
    program = report.graphs[0].fused
    calls = [s for s in program.steps if isinstance(s, Extern)]
    last = [
        is_channels_last(s.args[0].shape, s.args[0].strides)
        for s in calls
        if s.target == CONVOLUTION
    ]
    assert last == [True, True, False, False]
    assert [s.target for s in calls].count(LINEAR) == 1
    assert sum("relayout" in s.name for s in program.steps if isinstance(s, Kernel)) < 5


@pytest.mark.parametrize(
    "fn",
    [
        lambda y: y,
        lambda y: (y, y.relu(), y.view(1, -1)),
        lambda y: (y + 1).view(1, -1),
        lambda y: y.flatten(2).transpose(1, 2) @ W[:32, :32],
        lambda y: (y * 2).chunk(2, 1)[1].contiguous().view(-1) * 3,
        lambda y: F.layer_norm(y.permute(0, 2, 3, 1), (32,)),
        lambda y: F.conv2d(y, W[:32, :32, None, None]),
        lambda y: torch.cat([y, y + 1], 1).softmax(1),
    ],
    ids=range(8),
)  # fmt: skip
@pytest.mark.parametrize("pixels", [1, 3])
def test_what_the_program_sees_is_laid_out_as_ever(fn, pixels):
    weight = torch.randn(32, 3, pixels, pixels)
    image = torch.randn(2, 3, 96, 96)
    check(lambda x, w: fn(F.conv2d(x, w)), image, weight, graphs=1, rtol=1e-4, atol=1e-4)


def test_small_convolutions_stay_as_they_are():
    report = check(torch.nn.Conv2d(3, 8, 3), torch.randn(1, 3, 16, 16), graphs=1)
    (call,) = [s for s in report.graphs[0].fused.steps if isinstance(s, Extern)]
    assert not is_channels_last(call.args[0].shape, call.args[0].strides)
