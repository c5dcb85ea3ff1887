"""Sizes that the data decides, where gradients flow: one graph each way, values and gradients as plain code gives them."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import frameloom
from frameloom.autograd.op_by_op import OpByOp
from tests.helpers import jit_for_test
from tests.jit.gradients.training import caught, same_training
from tests.jit.sizes.test_data_sizes import masks

WEIGHT = torch.linspace(-1, 1, 28, dtype=torch.float64).reshape(7, 4).requires_grad_()


def flat(x):
    return x.reshape(-1, 7)


CASES = {
    "mean": lambda x, m: x[m].mean(),
    "mean_of_numbers": lambda x, m: x.sum(-1)[m].mean(),
    "linear": lambda x, m: (x[m] @ WEIGHT).relu().sum(),
    "masked_select": lambda x, m: x.masked_select(m[..., None]).exp(),
    "index_select": lambda x, m: flat(x).index_select(0, m.view(-1).nonzero()[:, 0]).cos(),
    "gather": lambda x, m: flat(x).gather(0, m.view(-1).nonzero() * 2 % 30).cos(),
    "cross_entropy": lambda x, m: F.cross_entropy(x[m] @ WEIGHT, m.nonzero()[:, 1] % 4),
    "returned": lambda x, m: x[m] * 2,
    "returned_view": lambda x, m: (x[m] * 2).t(),
    "with_its_size": lambda x, m: x[m].sum() / (x[m].shape[0] + 1),
    "scaled_by_a_count": lambda x, m: x.sum() * m.sum().item() / max(m.sum().item(), 1),
    "scaled_by_a_number": lambda x, m: x.sum() * m.float().mean().item(),
    "sliced": lambda x, m: (x.reshape(-1)[: m.sum().item()] * 2).sin(),
    "repeated": lambda x, m: x.repeat_interleave(m.sum(1), 0).cos(),
    "softmax": lambda x, m: x[m].softmax(0),
    "layer_norm": lambda x, m: F.layer_norm(x[m], (7,)),
    "put": lambda x, m: torch.zeros(5, 6, 7).double().index_put((m,), x[m].cos()),
    "max": lambda x, m: x[m].max() * 2,
    "sorted": lambda x, m: x[m].sort(0).values,
    "cat": lambda x, m: torch.cat([x[m], x[~m]]).cos(),
    "added": lambda x, m: torch.zeros(30, 7).double().index_add(0, m.view(-1).nonzero()[:, 0], x[m].exp()),
    "twice_selected": lambda x, m: (y := x[m].cos())[y[:, 0] > 0.5].exp(),
    "checkpoint": lambda x, m: checkpoint(lambda x: x[m].sin().exp().cos(), x, use_reentrant=False),
}  # fmt: skip


@pytest.fixture
def plain_passes(monkeypatch):
    """Backward passes that were not compiled."""
    passes = []
    module = OpByOp.module

    def counted(self, graph):
        run = module(self, graph)
        return lambda *args: passes.append(graph) or run(*args)

    monkeypatch.setattr(OpByOp, "module", counted)
    return passes


def over_masks(fn, use):
    def program(jit):
        compiled, seen = jit(lambda x, m: fn(x, m)), []
        for k, mask in enumerate(masks(5, 6)):
            torch.manual_seed(k)
            WEIGHT.grad = None
            x = torch.randn(5, 6, 7, dtype=torch.float64, requires_grad=True)
            seen.append(use(compiled, x, mask))
        return seen

    return program


def weighted(y):
    return (y * torch.arange(y.numel()).reshape(y.shape).cos()).sum()


def once(f, x, m):
    y = f(x, m)
    weighted(y).backward()
    return y, x.grad, WEIGHT.grad


@pytest.mark.parametrize("name", CASES)
def test_one_graph_each_way(name, plain_passes):
    same_training(over_masks(CASES[name], once), graphs=1)
    assert not frameloom.stats()["breaks"]
    assert not plain_passes


def twice_differentiated(f, x, m):
    y = f(x, m)
    (g,) = torch.autograd.grad(weighted(y), x, create_graph=True)
    return y, g, torch.autograd.grad(g.pow(2).sum(), x)


def with_a_hook(f, x, m):
    seen = []
    x.register_hook(lambda g: seen.append(g.sum()))
    weighted(f(x, m)).backward()
    return x.grad, seen


def two_passes(f, x, m):
    y = f(x, m)
    y.sum().backward(retain_graph=True)
    y.pow(2).sum().backward()
    return x.grad, caught(lambda: y.sum().backward())


def input_changed(f, x, m):
    y = f(x, m)
    with torch.no_grad():
        x.mul_(2)
    return caught(lambda: y.sum().backward()), x.grad


def mask_changed(f, x, m):
    y = f(x, m)
    m.logical_not_()
    return caught(lambda: y.sum().backward()), x.grad


def batched(f, x, m):
    y = f(x, m).flatten()[:1]
    return torch.autograd.grad(
        y, x, torch.ones(2, 1).double()[:, : y.numel()], is_grads_batched=True
    )


USES = (twice_differentiated, with_a_hook, two_passes, input_changed, mask_changed, batched)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["mean", "returned_view", "max", "sliced", "twice_selected"])
def test_other_uses_of_the_history(name, use):
    fn = CASES[name]
    same_training(over_masks(lambda x, m: fn(x.exp(), m) + x.sum(), use))


def test_an_output_without_gradient(plain_passes):
    def fn(x, m):
        return x[m].exp(), (x[~m] * 2).cos()

    def use(f, x, m):
        one, other = f(x, m)
        other.sum().backward()
        return one, other, x.grad

    same_training(over_masks(fn, use), graphs=1)
    assert not plain_passes


def test_assumptions_where_hooks_have_the_call_run_op_by_op():
    def fn(x, m, w):
        y = x[m]
        return (y.exp().sum() if y.shape[0] else x.sum()), w * 2

    def program(jit):
        f, seen = jit(fn), []
        for mask in masks(5, 6):
            x, w = torch.ones(5, 6, requires_grad=True), torch.ones(3, requires_grad=True)
            for t in (x, w):
                t.register_hook(lambda g: seen.append(g))
            f(x, mask, w)[0].backward()
            seen.append(x.grad)
        return seen

    same_training(program)


# --- modules


class Experts(nn.Module):
    def __init__(self, n=4, d=8):
        super().__init__()
        self.gate, self.n = nn.Linear(d, n), n
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.GELU()) for _ in range(n))

    def forward(self, x):
        h = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(h).softmax(-1).topk(2, -1)
        out = torch.zeros_like(h)
        taken = F.one_hot(chosen, self.n).permute(2, 1, 0)
        for e, expert in enumerate(self.experts):
            rank, token = torch.where(taken[e])
            given = h[None, token].reshape(-1, h.shape[-1])
            out.index_add_(0, token, expert(given) * weights[token, rank, None])
        return out.reshape(x.shape)


class Assigned(Experts):
    def forward(self, x):
        h = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(h).softmax(-1).max(-1)
        out = torch.zeros_like(h)
        for e, expert in enumerate(self.experts):
            mine = chosen == e
            out[mine] = expert(h[mine]) * weights[mine][:, None]
        return out.reshape(x.shape)


class Packed(nn.Module):
    """Ragged rows: lengths, mask, what is there, and back."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        lengths = (x[:, 0, 0].abs() * 3).long().clamp(0, x.shape[1])
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        made = self.linear(x[mask]).relu()
        out = torch.zeros_like(x)
        out[mask] = made
        return out


class Repeated(Packed):
    def forward(self, x):
        h = x.reshape(-1, 8)
        return self.linear(h.repeat_interleave((h[:, 0].abs() * 2).long().clamp(0, 3), 0)).sum(0)


class Unique(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, x):
        found, where = (x[..., 0].abs() * 4).long().clamp(0, 9).unique(return_inverse=True)
        return self.table(found)[where].cos() * x


class Chosen(Packed):
    def forward(self, x):
        losses = self.linear(x).pow(2)
        m = x[..., 0] > 0
        return losses[m].mean() + losses.mean(-1)[~m].sum() * m.sum().item()


def data(k):
    """Of which some rows are chosen, none, one, or all."""
    torch.manual_seed(k)
    x = torch.randn(3, 5, 8)
    if k in (2, 3):
        x = -x.abs()
    if k == 3:
        x[0, 1, 0] = 1.5
    return x.abs() if k == 4 else x


def training(kind, whole, optimizer=torch.optim.SGD):
    def program(jit):
        torch.manual_seed(0)
        model = kind()
        chosen = optimizer(model.parameters(), lr=0.01)

        def step(x):
            chosen.zero_grad()
            y = model(x)
            y.pow(2).mean().backward()
            chosen.step()
            return y.detach()

        def forward(x):
            return model(x)

        if whole:
            step = jit(step)
        else:
            forward = jit(forward)
        seen = []
        for k in range(6):
            x = data(k)
            if whole:
                seen.append(step(x))
            else:
                x.requires_grad_()
                chosen.zero_grad()
                y = forward(x)
                y.pow(2).mean().backward()
                chosen.step()
                seen += [y.detach(), x.grad]
            seen.append([p.detach().clone() for p in model.parameters()])
        return seen

    return program


class Sorted(Experts):
    def forward(self, x):
        h = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(h).softmax(-1).max(-1)
        counts = torch.bincount(chosen, minlength=self.n).tolist()
        order = chosen.argsort(stable=True)
        parts = zip(self.experts, h[order].split(counts), strict=True)
        made = torch.cat([expert(part) for expert, part in parts])
        return torch.zeros_like(h).index_add(0, order, made * weights[order][:, None])


class Scattered(Packed):
    def forward(self, x):
        m = x[..., 0] > 0
        return x.masked_scatter(m[..., None], self.linear(x)[m])


KINDS = (Experts, Assigned, Sorted, Packed, Repeated, Unique, Chosen, Scattered)


@pytest.mark.parametrize("kind", KINDS)
def test_modules(kind, plain_passes):
    same_training(training(kind, whole=False), graphs=1)
    assert not frameloom.stats()["breaks"]
    assert not plain_passes


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_steps(kind, optimizer):
    """The second graph is for gradients that are there."""
    same_training(training(kind, whole=True, optimizer=optimizer), graphs=2)
    assert not frameloom.stats()["breaks"]


@pytest.mark.parametrize("shapes", [
    ((4, 5), (4, 5), (4, 5)), ((4, 5), (4, 1), (20, 1)), ((4, 5), (4, 5), (3, 3)), ((4, 1), (4, 5), (4, 6)),
])  # fmt: skip
@pytest.mark.parametrize("fn", [
    lambda x, m, s: x.masked_scatter(m, s), lambda x, m, s: x.t().masked_scatter(m.t(), s.t().exp()) * 2,
])  # fmt: skip
def test_masked_scatter(fn, shapes):
    """Where the source has too few elements, it raises as plain code does."""

    def program(jit):
        f, seen = jit(lambda x, m, s: fn(x, m, s)), []
        for share in (0.5, 0, 1, 0.2):
            x, m, s = (torch.randn(shape, requires_grad=True) for shape in shapes)
            y = caught(f, x, m > torch.quantile(m, 1 - share) if share < 1 else m < 100, s)
            if isinstance(y, torch.Tensor):
                y.cos().sum().backward()
            seen += [y, x.grad, s.grad]
        return seen

    same_training(program, graphs=1)


@pytest.mark.parametrize("shape", [(2, 3), (2, 1), (1, 2)])
@pytest.mark.parametrize("mask", [(), (1,), "same"])
@pytest.mark.parametrize("turned", [False, True])
def test_strides_of_the_gradient_of_masked_scatter(shape, mask, turned):
    def fn(x, m):
        y = x.masked_scatter(m, torch.ones(6))
        return y.t() if turned else y

    strides = []
    for side in (fn, frameloom.jit(fn)):
        for x in (torch.ones(shape), torch.ones(shape[::-1]).t()):
            y = side(x.requires_grad_(), torch.ones(shape if mask == "same" else mask) > 0)
            for g in (torch.ones(y.shape), torch.ones(y.shape[::-1]).t()):
                strides.append(torch.autograd.grad(y, x, g, retain_graph=True)[0].stride())
    assert strides[:4] == strides[4:]


@pytest.mark.parametrize("breaks", [False, True])
def test_rows_that_are_put_back_in_place(breaks):
    """Histories are whole behind a break, too."""

    class Written(Packed):
        def forward(self, x):
            m = x[..., 0] > 0
            rows = self.linear(x)[m]
            if breaks:
                frameloom.graph_break()
            return x.clone().masked_scatter_(m[..., None], rows)

    same_training(training(Written, whole=True))
    assert bool(frameloom.stats()["breaks"]) == breaks


def test_another_number_of_rows_is_no_other_entry():
    model = Packed()
    jitted = jit_for_test(lambda x: model(x))
    for k in range(12):
        jitted(torch.randn(3, 5, 8) * k).sum().backward()
    assert len(jitted.explanation.graphs) == 1
    assert len(jitted.explanation.graphs[0].backward) == 1


def test_a_masked_write_that_breaks_leaves_no_history():
    def program(jit):
        @jit
        def f(x):
            y = x * 2
            y[y > 0.5] = 0.1
            part = y.detach()
            part[:, 2] *= 2
            return y.sum()

        x = torch.rand(4, 3).requires_grad_()
        y = f(x)
        y.backward()
        return [y, x.grad]

    same_training(program)
