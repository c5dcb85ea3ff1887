"""Products of matrices by oneDNN where it is faster: the same results, for the products that it is for."""

import pytest
import torch
import torch.nn.functional as F

from frameloom import onednn
from frameloom.ir.lower.onednn import LINEAR
from tests.helpers import check

pytestmark = pytest.mark.skipif(not onednn._is_there(), reason="PyTorch without oneDNN")
X, W, B = torch.randn(128, 160), torch.randn(192, 160), torch.randn(192)


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
    from frameloom.runtime.cache import DiskCache

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
