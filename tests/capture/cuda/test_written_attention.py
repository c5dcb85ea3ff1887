"""Attention that is written out is recognised: what the rewritten graph computes is what the program computes."""

import math

import pytest
import torch
import torch.nn.functional as F

from frameloom.capture.graph_passes import attention_pattern as written_attention
from frameloom.capture.speculation.assume import restarting
from tests.capture.capturing import GraphRunner, as_recorded, jitted

B, H, L, D = 2, 4, 24, 16
ATTENTION = "aten.scaled_dot_product_attention.default"


class Recognising(GraphRunner):
    """Runs each graph after the pass, on the CPU."""

    def compile_graph(self, graph, trail):
        self.graph = written_attention.recognised(graph)
        run = as_recorded(self.graph.gm.forward)
        return restarting(run) if graph.restarts else run


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(written_attention, "_on_gpu", lambda node: True)


def recognised(fn, *args, tolerance=2e-6):
    """The calls of attention in the rewritten graph, which gives what `fn` gives."""
    from frameloom.capture import _capture

    runner = Recognising()
    with torch.no_grad():
        found, plain = _capture.JitFunction(fn, runner)(*args), fn(*args)
    assert not runner.breaks, runner.breaks[0].text
    assert (found.shape, found.stride(), found.dtype) == (plain.shape, plain.stride(), plain.dtype)
    torch.testing.assert_close(found, plain, rtol=tolerance, atol=tolerance, equal_nan=True)
    return [n for n in runner.graph.graph.nodes if str(n.target) == ATTENTION]


def heads(dtype=torch.float32):
    """Query, key and value as a transformer has them: (batch, heads, positions, features), laid out by positions."""
    return [torch.randn(B, L, H, D).to(dtype).transpose(1, 2) for _ in range(3)]


def merged(x):
    return x.transpose(1, 2).reshape(B, L, H * D)


SEES = torch.rand(B, 1, L, L) > 0.4
SEES[:, :, :, 0] = True
TRIL = torch.ones(L, L).tril()
BIAS = torch.randn(1, H, L, L)
LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    "fn",
    [
        lambda q, k, v: F.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1) @ v,
        lambda q, k, v: (q @ k.transpose(-2, -1) * D**-0.5).softmax(-1) @ v,
        lambda q, k, v: torch.softmax(D**-0.5 * torch.matmul(q, k.mT), 3).matmul(v),
        lambda q, k, v: ((q * D**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v,
        lambda q, k, v: (
            F.softmax(q @ k.transpose(2, 3), dim=-1, dtype=torch.float32).to(q.dtype) @ v
        ),
        lambda q, k, v: F.dropout(F.softmax(q @ k.mT / 4, -1), 0.1, False) @ v,
        lambda q, k, v: merged(F.softmax(q @ k.mT / 4, -1) @ v),
        lambda q, k, v: (F.softmax(q @ k.mT / 4, -1) @ v).transpose(1, 2).contiguous(),
        lambda q, k, v: (F.softmax(q @ k.mT / 4, -1) @ v).relu(),
        lambda q, k, v: F.softmax(torch.bmm(q[0], k[0].mT) / 4, -1).bmm(v[0]),
        lambda q, k, v: F.softmax(q[0, 0] @ k[0, 0].t() / 4, -1) @ v[0, 0],
        lambda q, k, v: F.softmax(torch.baddbmm(BIAS[0], q[0], k[0].mT, alpha=0.25), -1).bmm(v[0]),
        lambda q, k, v: F.softmax(q @ k.mT / torch.full([], 4.0), -1) @ v,
        lambda q, k, v: F.softmax(q[:, :, :5] @ k.mT / 4, -1) @ v,
    ],
)
def test_without_masks(fn):
    (call,) = recognised(fn, *heads())
    assert "clone" not in str(call.args[0]), "the query is not copied"


@pytest.mark.parametrize(
    "fn",
    [
        lambda q, k, v: F.softmax(q @ k.mT / 4 + BIAS, -1) @ v,
        lambda q, k, v: F.softmax(BIAS + q @ k.mT, -1) @ v,
        lambda q, k, v: F.softmax((q @ k.mT / 4).masked_fill(TRIL == 0, float("-inf")), -1) @ v,
        lambda q, k, v: F.softmax((q @ k.mT).masked_fill(TRIL == 0, -math.inf) / 4, -1) @ v,
        lambda q, k, v: F.softmax((q @ k.mT / 4).masked_fill(~SEES, -1e9), -1) @ v,
        lambda q, k, v: F.softmax((q @ k.mT / 4).masked_fill(~SEES, LOWEST), -1) @ v,
        lambda q, k, v: F.softmax(torch.where(SEES, q @ k.mT / 4, LOWEST), -1) @ v,
        lambda q, k, v: F.softmax(torch.where(~SEES, -1e10, q @ k.mT / 4), -1) @ v,
        lambda q, k, v: F.softmax(q @ k.mT / 4 + (1 - SEES.float()) * -1e4, -1) @ v,
        lambda q, k, v: F.softmax((q @ k.mT / 4 + BIAS).masked_fill(~SEES, -math.inf), -1) @ v,
        lambda q, k, v: F.softmax(q @ k.mT / 4 + torch.where(SEES, 0.0, -math.inf), -1) @ v,
        lambda q, k, v: F.softmax(q @ k.mT / 4 + BIAS[0, 0, 0], -1) @ v,
        lambda q, k, v: F.softmax((q @ k.mT / 4).view(B * H, L, L) + BIAS[0, :1], -1).bmm(
            v.reshape(B * H, L, D)
        ),
    ],
)
def test_with_masks(fn):
    (call,) = recognised(fn, *heads())
    assert call.args[3] is not None


@pytest.mark.parametrize("value", [-math.inf, -1e9, LOWEST])
def test_queries_that_see_nothing(value):
    sees = SEES.clone()
    sees[0, 0, 3] = False
    assert recognised(
        lambda q, k, v: F.softmax((q @ k.mT / 4).masked_fill(~sees, value), -1) @ v, *heads()
    )
    if value == -math.inf:
        added = torch.zeros(B, 1, L, L).masked_fill(~sees, value)
        assert recognised(lambda q, k, v: F.softmax(q @ k.mT / 4 + added, -1) @ v, *heads())


def test_repeated_heads():
    def f(q, k, v):
        k, v = (t[:, :, None].expand(B, 2, 2, L, D).reshape(B, H, L, D) for t in (k, v))
        return F.softmax(q @ k.mT / 4, -1) @ v

    q, k, v = heads()
    assert recognised(f, q, k[:, :2], v[:, :2])


def test_one_head_of_keys_for_all():
    q, k, v = heads()
    assert recognised(lambda q, k, v: F.softmax(q @ k.mT / 4, -1) @ v, q, k[:, :1], v[:, :1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    def f(q, k, v):
        scores = (q @ k.mT / 4).masked_fill(TRIL == 0, -math.inf)
        return F.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v

    assert recognised(f, *heads(dtype), tolerance=2e-2)


@pytest.mark.parametrize(
    "fn, dtype",
    [
        (lambda q, k, v: F.softmax(q @ k.mT / 4, -2) @ v, torch.float32),
        (lambda q, k, v: F.softmax(q @ k.mT / 4, -1) @ v, torch.float64),
        (lambda q, k, v: F.softmax(q @ k.mT / -4, -1) @ v, torch.float32),
        (lambda q, k, v: F.softmax((q @ k.mT + BIAS) / 4, -1) @ v, torch.float32),
        (lambda q, k, v: (p := F.softmax(q @ k.mT, -1)) @ v + p.sum(), torch.float32),
        (lambda q, k, v: F.softmax((q @ k.mT).masked_fill(~SEES, -1.0), -1) @ v, torch.float32),
        (lambda q, k, v: F.softmax((q @ k.mT).masked_fill(~SEES, -6e4), -1) @ v, torch.float16),
        (lambda q, k, v: F.softmax((q @ k.mT).relu(), -1) @ v, torch.float32),
        (lambda q, k, v: F.softmax(q @ k.mT, -1).mT @ v, torch.float32),
        (lambda q, k, v: F.softmax(q @ k.mT + BIAS, -1).to(q.dtype) @ v, torch.bfloat16),
        (lambda q, k, v: F.softmax(q @ k.mT, -1) @ v[..., :8], torch.float32),
    ],
    ids=["other dimension", "F64", "negative", "scaled mask", "weights used", "high", "F16", "relu", "transposed", "wide mask", "narrow values"],
)  # fmt: skip
def test_what_is_no_attention_stays(fn, dtype):
    assert not recognised(fn, *heads(dtype), tolerance=2e-2)


def test_the_graph_of_the_program_is_left_as_it_is():
    fn, runner = jitted(lambda q, k, v: F.softmax(q @ k.mT / 4, -1) @ v)
    with torch.no_grad():
        fn(*heads())
    before = str(runner.graphs[0].graph)
    assert written_attention.recognised(runner.graphs[0]) is not runner.graphs[0]
    assert str(runner.graphs[0].graph) == before
