"""options={"freezing": True}: the same results as eager, and every change that autograd counts is noticed."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from frameloom import compiler
from frameloom.backend import onednn
from frameloom.ir.lower.layout.onednn import CONVOLUTION
from tests import fresh
from tests.helpers import jit_for_test
from tests.observe import assert_same_call, observe

FREEZE = {"options": {"freezing": True}}
X = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.up, self.other = nn.ConvTranspose2d(8, 4, 2, groups=2), nn.BatchNorm2d(4, affine=False)
        self.head = nn.Linear(4, 5)
        self.scale = nn.Parameter(torch.randn(4))
        self.register_buffer("mask", torch.randn(5))
        for norm in (self.norm, self.other):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = self.other(self.up(self.deep(x) + x[:, :, 1:-1, 1:-1]))
        return self.head(x.mean((2, 3)) * self.scale.exp()) + self.mask.softmax(0)


def net():
    torch.manual_seed(1)
    return Net().eval()


class Pair:
    """A module that is called plainly and frozen."""

    def __init__(self, module, *args):
        self.module, self.args = module, args
        self.jitted = jit_for_test(lambda *args: module(*args), **FREEZE)

    def check(self, compiles, where=""):
        before = frameloom.stats()["graphs"]
        got, want = (observe(f, self.args) for f in (self.jitted, lambda *args: self.module(*args)))
        assert_same_call(got, want, where, 1e-4, 1e-5)
        assert frameloom.stats()["graphs"] - before == compiles, where

    @property
    def entries(self):
        return self.jitted.target.entries

    @property
    def graph(self):
        return self.jitted.explanation.graphs[-1]


def test_parameters_are_constants_and_norms_part_of_convolutions():
    pair = Pair(net(), X)
    pair.check(1)
    pair.check(0)
    assert [b.shape for b in pair.graph.fused.inputs] == [X.shape]
    names = " ".join(k.name for k in pair.graph.kernels)
    assert not any(word in names for word in ("batch_norm", "exp", "softmax", "relu")), names
    if onednn._is_there():  # the transposed one is left alone
        assert pair.graph.library_calls.count(CONVOLUTION) == 2


def in_place(m):
    with torch.no_grad():
        m.conv.weight.mul_(2)


def of_a_buffer(m):
    m.norm.running_var.add_(1)


def of_an_alias(m):
    m.scale.detach().add_(1)


def in_inference_mode(m):
    with torch.inference_mode():
        m.head.bias.zero_()


def loaded(m):
    m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items() if v.is_floating_point()}, False)  # fmt: skip


def replaced(m):
    m.head.weight = nn.Parameter(torch.randn(5, 4))


def other_data(m):
    m.deep.weight.data = torch.randn(8, 1, 3, 3)


def other_dtype(m):
    m.double().float()


def stepped(m):
    with torch.enable_grad():
        m(X).sum().backward()
    torch.optim.SGD(m.parameters(), 0.1).step()
    m.zero_grad()


def other_module(m):
    m.norm = copy.deepcopy(m.norm)
    m.norm.weight.data += 1


@pytest.mark.parametrize(
    "change",
    [in_place, of_a_buffer, of_an_alias, in_inference_mode, loaded, replaced, other_data, other_dtype, stepped, other_module],
)  # fmt: skip
def test_a_change_is_noticed(change):
    pair = Pair(net(), X)
    pair.check(1)
    change(pair.module)
    pair.check(1, "after the change")
    pair.check(0, "again")


def test_training_is_not_frozen():
    pair = Pair(net(), X)
    pair.check(1)
    observe(lambda: pair.module.train(), ())
    got, want = copy.deepcopy(pair.module), copy.deepcopy(pair.module)
    jitted = frameloom.jit(lambda x: got(x), **FREEZE)
    with torch.no_grad():
        torch.testing.assert_close(jitted(X), want(X), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got.norm.running_mean, want.norm.running_mean)
    pair.module.eval()
    pair.check(0, "in evaluation again")


def test_one_part_in_training():
    m = net()
    m.other.train()
    pair = Pair(m, X)
    pair.check(1)
    names = {b.name for b in pair.graph.fused.inputs}
    assert len(names) == 1 + 3  # the input, and what the norm in training has


def test_where_gradients_are_recorded_nothing_is_frozen():
    m = net()
    jitted = frameloom.jit(lambda x: m(x), **FREEZE)
    jitted(X).sum().backward()
    assert m.conv.weight.grad is not None


def test_only_what_belongs_to_modules_is_frozen():
    w = torch.randn(24, 4)
    jitted = jit_for_test(lambda x: x @ w.exp(), **FREEZE)
    assert_same_call(observe(jitted, (X,)), observe(lambda x: x @ w.exp(), (X,)), "")
    w.data.zero_()
    assert_same_call(observe(jitted, (X,)), observe(lambda x: x @ w.exp(), (X,)), "changed")


class Returns(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.w, self.result = nn.Parameter(torch.randn(3, 4)), result

    def forward(self, x):
        return x.mean() + self.w.sum(), self.result(self.w)


@pytest.mark.parametrize(
    "result",
    [
        lambda w: w,
        lambda w: w[1:].t(),
        lambda w: w * 2,
        lambda w: (w * 2)[1:],
        lambda w: [w + 1, w.exp().t()],
        lambda w: torch.zeros(3, 4).add_(w),
    ],
    ids=range(6),
)
def test_what_the_program_gets_back_is_its_own(result):
    """Parameters themselves, or something fresh in every call."""
    m = Returns(result).eval()
    pair = Pair(m, X)
    pair.check(1)
    pair.check(0)
    with torch.no_grad():
        one, other = (pair.jitted(X)[1] for _ in range(2))
        plain = m(X)[1]
    for got, again, want in zip(*([v] if torch.is_tensor(v) else v for v in (one, other, plain)), strict=True):  # fmt: skip
        shared = want.untyped_storage().data_ptr() == m.w.untyped_storage().data_ptr()
        assert (got.untyped_storage().data_ptr() == m.w.untyped_storage().data_ptr()) == shared
        assert shared or got.data_ptr() != again.data_ptr()


def test_a_buffer_that_the_call_changes():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))
            self.register_buffer("step", torch.ones(3))

        def forward(self, x):
            self.calls += self.step * 2
            return x * self.calls.sum()

    frozen, plain = Counts().eval(), Counts().eval()
    jitted = frameloom.jit(lambda x: frozen(x), **FREEZE)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(jitted(X), plain(X))
    torch.testing.assert_close(frozen.calls, plain.calls)


def test_random_numbers_are_drawn_in_every_call():
    class Noise(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.full((64,), 0.5))

        def forward(self, x):
            return x.mean() + torch.bernoulli(self.p)

    m = Noise().eval()
    pair = Pair(m, X)
    pair.check(1)
    pair.check(0)


def test_what_is_computed_from_parameters_is_small():
    """Not what takes more memory than the parameters."""

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.row, self.column = (
                nn.Parameter(torch.randn(2048)),
                nn.Parameter(torch.randn(2048, 1)),
            )

        def forward(self, x):
            return x.mean() + (self.row + self.column).exp()

    pair = Pair(Table().eval(), X)
    pair.check(1)
    assert sum(t.numel() for _, t in pair.graph.fused.constants) == 4096


def test_tensors_of_inference_mode_stay_inputs():
    with torch.inference_mode():
        m = net()
        jitted = frameloom.jit(lambda x: m(x), **FREEZE)
        torch.testing.assert_close(jitted(X), m(X), rtol=1e-4, atol=1e-5)
        m.scale.zero_()
        torch.testing.assert_close(jitted(X), m(X), rtol=1e-4, atol=1e-5)


def test_a_module_is_jitted_in_place():
    m, plain = net(), net()
    frameloom.jit(m, **FREEZE)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(m(X), plain(X), rtol=1e-4, atol=1e-5)
            in_place(m), in_place(plain)


def test_graphs_after_a_break():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            y = self.inner(x)
            frameloom.graph_break()
            return self.inner(x + 1) - y

    pair = Pair(Breaks().eval(), X)
    pair.check(2)
    in_place(pair.module.inner)
    pair.check(2)


def test_what_changes_again_and_again_is_not_frozen():
    """Old entries go at once, with what they hold."""
    pair = Pair(net(), X)
    for _ in range(compiler.CHANGES):
        pair.check(1)
        assert len(pair.entries) == 1
        in_place(pair.module)
    with pytest.warns(RuntimeWarning, match="not frozen any more"), torch.no_grad():
        pair.jitted(X)
    for _ in range(3):
        in_place(pair.module)
        pair.check(0)
    assert len(pair.entries) == 1


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.bfloat16, 5e-2)])
def test_on_a_gpu(dtype, tolerance):
    m, x = net().to("cuda", dtype), X.to("cuda", dtype)
    jitted = jit_for_test(lambda x: m(x), **FREEZE)
    with torch.no_grad():
        for change in (lambda m: None, in_place, of_a_buffer, loaded):
            change(m)
            for _ in range(2):
                torch.testing.assert_close(jitted(x), m(x), rtol=tolerance, atol=tolerance)
    assert len(jitted.explanation.graphs) == 4
    for graph in jitted.explanation.graphs:
        assert not any(c.startswith("mkldnn") for c in graph.library_calls)
        assert not any("batch_norm" in k.name for k in graph.kernels)


def test_a_first_call_in_inference_mode():
    program = """
import torch, frameloom
net = torch.nn.Linear(2, 2).eval()
with torch.inference_mode():
    jitted = frameloom.jit(net, options={"freezing": True})
    jitted(torch.ones(2))
    with torch.no_grad():
        net.weight.zero_()
    assert torch.equal(jitted(torch.ones(2)), net.bias)
from frameloom.capture import _capture
assert _capture.tracks_versions()
"""
    fresh.run(program, check=True)
