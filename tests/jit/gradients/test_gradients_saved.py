"""What compiled calls save for their gradients: changes to it are noticed where eager notices them, hooks see it, it goes away."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

FUNCTIONS = {
    "a product": lambda x, w, b: x @ w,
    "a sum": lambda x, w, b: x + b,
    "a sum and more": lambda x, w, b: (x + b).exp().sin(),
    "a layer": lambda x, w, b: F.gelu(F.linear(x, w, b)),
    "a result that is saved": lambda x, w, b: torch.sigmoid(x @ w),
    "a result that is not": lambda x, w, b: (x @ w) * 2 + 1,
    "a softmax": lambda x, w, b: F.softmax(F.layer_norm(x @ w, (8,), b), -1),
    "a transposed result": lambda x, w, b: F.silu((x @ w).t()),
    "two results": lambda x, w, b: ((y := x @ w) * 2, torch.tanh(y * 3)),
    "the data of a result": lambda x, w, b: ((y := torch.sigmoid(x @ w)).data, y * 2),
    "a part, and what is made of all": lambda x, w, b: (
        (y := x @ w)[1:],
        (y + 1).sin() + (y + 2).sin() + (y + 3).sin(),
    ),
    "a result and what is made of it": lambda x, w, b: (y := (x @ w) * b, y.exp().sum()),
}


# What their derivatives do not read.
UNREAD = {
    "gather": lambda x: x.gather(0, torch.zeros(2, 1, dtype=torch.int64)),
    "two results": lambda x: (x.sum(), x.gather(0, torch.zeros(2, 1, dtype=torch.int64))),
    "a result": lambda x: x.prod(),
}


@pytest.mark.parametrize("name", UNREAD)
def test_changes_of_what_is_saved_and_not_read_are_noticed(name):
    def program(jit):
        f = jit(UNREAD[name])
        seen = []
        for take in (slice(0, 1), slice(1, 2), slice(0, 2)):
            x = leaf(2, 2) * 1
            out = f(x)
            outs = out if isinstance(out, tuple) else (out,)
            with torch.no_grad():
                (outs[0] if name == "a result" else x).zero_()
            total = sum(o.real.sum() for o in outs[take] or outs)
            result = caught(torch.autograd.grad, total, x)
            seen.append(result[0] if isinstance(result[0], type) else result)
        return seen

    assert str(program(lambda f: f)) == str(program(frameloom.jit))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("changed", ["x", "w", "b", "out", "view"])
def test_changes_are_noticed_where_eager_notices_them(name, changed):
    def program(jit):
        f = jit(FUNCTIONS[name])
        seen = []
        for _ in range(2):
            x, w, b = (t * 1 for t in (leaf(4, 8), leaf(8, 8), leaf(8)))
            out = f(x, w, b)
            outs = out if isinstance(out, tuple) else (out,)
            with torch.no_grad():
                target = {
                    "x": x,
                    "w": w,
                    "b": b,
                    "out": outs[0],
                    "view": outs[0].view(-1) if outs[0].is_contiguous() else outs[0][0],
                }[changed]
                target.add_(1)
            total = sum(o.sum() for o in outs)
            result = caught(torch.autograd.grad, total, [x, w, b], allow_unused=True)
            fails = isinstance(result[0], type)
            seen.append(
                result[0] if fails else [g if g is None else g.contiguous() for g in result]
            )
        return seen

    same_training(program)


def test_saved_tensors_hooks():
    def program(jit):
        f = jit(lambda x, w: (x @ w).exp())
        x, w = torch.randn(4, 8), leaf(8, 8)
        seen = []
        f(x, w)

        def pack(t):
            seen.append(("pack", t.shape))
            return t.numpy(force=True)

        def unpack(a):
            seen.append(("unpack", a.shape))
            return torch.from_numpy(a)

        for _ in range(2):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                out = f(x, w)
            out.sum().backward()
            with torch.autograd.graph.save_on_cpu():
                out = f(x, w)
            out.sum().backward()
        f(x, w).sum().backward()
        return seen, facts(w)

    same_training(program, plain=None)


def test_hooks_for_saved_tensors_set_inside():
    def program(jit):
        seen = []

        @jit
        def f(x, w):
            y = x @ w
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t: seen.append(t.shape) or t, lambda t: t
            ):
                z = y.exp()
            return z.sin()

        x, w = torch.randn(4, 8), leaf(8, 8)
        for _ in range(2):
            f(x, w).sum().backward()
        return seen, facts(w)

    same_training(program, plain=None)


def test_anomaly_mode():
    def program(jit):
        f = jit(lambda x: x.sqrt() * 0)
        seen = []
        f(torch.ones(3, requires_grad=True)).sum().backward()
        for _ in range(2):
            x = torch.zeros(3, requires_grad=True)
            with torch.autograd.detect_anomaly(check_nan=True):
                seen.append(caught(lambda: f(x).sum().backward()))
        f(x).sum().backward()
        return seen, facts(x)

    same_training(program, plain=None)


def _lives(make):
    """Weak references to a model and its tensors, after training it for a moment."""
    model = make()
    frameloom.jit(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        x = torch.randn(4, 8)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    found = [weakref.ref(t) for t in (x, loss, *model.parameters())]
    found.append(weakref.ref(model))
    return found


@pytest.mark.parametrize("second", [False, True])
def test_deleting_a_model_frees_its_memory(second):
    def make():
        return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1))

    found = _lives(make)
    gc.collect()
    assert [r() is None for r in found] == [True] * len(found)


def test_what_a_pass_needs_goes_with_it():
    f = frameloom.jit(lambda x, w: ((x @ w).exp(), x + 1))
    w = leaf(8, 8)
    gc.disable()
    try:
        for _ in range(3):
            x = torch.randn(4, 8)
            out, other = f(x, w)
            seen = weakref.ref(x)
            out.sum().backward()
            del x, other
            assert seen() is None
            seen = weakref.ref(out)
            del out
            assert seen() is None
            out, other = f(torch.randn(4, 8), w)  # never followed backwards
            seen = weakref.ref(out)
            del out, other
            assert seen() is None
    finally:
        gc.enable()


def test_only_what_a_pass_reads_is_looked_at():
    def fn(x, y):
        h = (F.silu(x) * 2).sin()
        x.add_(1)
        return h * h, y.exp(), h

    def change(k, x, outs):
        with torch.no_grad():
            (x if k == 0 else outs[k]).add_(1)

    def program(jit):
        seen = []
        for k in range(3):
            for keep in (False, True):
                a, y = leaf(3), leaf(3)
                x = a * 1.5
                outs = jit(fn)(x, y)
                change(k, x, outs)
                for n in (1, 0):
                    error = caught(outs[n].sum().backward, retain_graph=keep)
                    seen += [error and error[0], y.grad]
                    if error is not None:
                        break
        return seen

    same_training(program)


@pytest.mark.parametrize("backend", [None, "eager"])
def test_what_is_made_of_numbers_alone_counts_as_unchanged(backend):
    def program(jit):
        def f(x, y):
            return torch.zeros(3), x.sin() @ torch.zeros(3, 3), y.exp()

        if jit is frameloom.jit:
            f = jit(f, backend=backend)
        x, y = leaf(3), leaf(3)
        _, s, e = f(x, y)
        with torch.no_grad():
            e.add_(1)
        s.sum().backward()
        return x.grad, caught(e.sum().backward)[0]

    same_training(program)


def test_a_second_pass_where_nothing_is_saved():
    def program(jit):
        x, w, b = torch.randn(2, 3), torch.randn(3, 3), leaf(3)
        y = jit(lambda *a: F.linear(*a))(x, w, b)
        y.sum().backward()
        y.sum().backward()
        return facts(b)

    same_training(program)


@pytest.mark.parametrize("backend", [None, "eager"])
def test_what_only_its_sizes_are_needed_of_where_these_vary(backend):
    def fn(x):
        v = (x * 2)[x > 0.1].clone()
        return torch.addcdiv(v, v, v.abs() + 1), v

    def program(jit):
        f = fn
        if jit is frameloom.jit:
            f = jit(fn, backend=backend)
        seen = []
        for _ in range(3):
            x = leaf(5, 3)
            a, b = f(x)
            (a.sum() + b.sum()).backward()
            seen += facts(x)
        return seen

    same_training(program)


@pytest.mark.parametrize("before", ["the write", "the pass"])
@pytest.mark.parametrize("value", [1.5, torch.ones(1), torch.ones(2)])
def test_a_mask_by_which_was_written(value, before):
    def fn(x, mask):
        y = x * 2
        y[mask] = value
        if before == "the write":
            mask.fill_(True)
        return y

    def program(jit):
        x, mask = leaf(4), torch.tensor([True, False, True, False])
        y = jit(fn)(x, mask)
        mask.fill_(False)
        return y, caught(y.sum().backward)[0], *facts(x)

    same_training(program, plain=None)


@pytest.mark.parametrize("changed", ["its argument, inside", "its argument", "a result"])
@pytest.mark.parametrize("other", ["sin", "square", "softmax", "add"])
def test_what_one_result_saves_and_another_reads(other, changed):
    others = {"sin": torch.sin, "square": torch.square, "softmax": lambda t: t.softmax(0), "add": lambda t: t + 1}  # fmt: skip

    def fn(x):
        a, b = others[other](x), x.cummax(0)[0]
        if changed == "its argument, inside":
            x.mul_(2)
        if changed == "a result":
            a.mul_(2)
        return a, b, x

    def program(jit):
        f, seen = jit(fn), []
        for k in range(3):
            w = leaf(3)
            results = f(w * 1)
            if changed == "its argument":
                results[2].mul_(2)
            seen += [str(caught(results[k].sum().backward))[:120], w.grad]
        return seen

    same_training(program, plain=None)


@pytest.mark.parametrize("change", ["mul_", "unsqueeze_", "set_"])
@pytest.mark.parametrize("target", ["data", "tensor"])
def test_the_data_of_a_tensor_counts_its_changes_itself(change, target):
    def fn(x, w):
        x = x * 1
        data = x.data
        y = (data * w).sin()
        changed = data if target == "data" else x
        getattr(changed, change)(*{"mul_": (2,), "unsqueeze_": (0,), "set_": (w.detach(),)}[change])
        return y

    def program(jit):
        w = leaf(3)
        error = caught(jit(fn)(torch.arange(3.0), w).sum().backward)
        return error is None, w.grad

    same_training(program, plain=None)


VIEWED_WHERE_1 = {
    "reshape": lambda y: y.reshape(-1),
    "flatten": torch.flatten,
    "contiguous": torch.Tensor.contiguous,
    "ravel": torch.ravel,
    "reshape_as": lambda y: y.reshape_as(y.t()),
}


@pytest.mark.parametrize("name", VIEWED_WHERE_1)
def test_a_saved_copy_that_is_a_view_where_a_size_is_1(name):
    """Autograd notices that its base is written; PyTorch remembers what it was asked of a layout, so that a second call asks nothing."""

    def program(jit):
        op = VIEWED_WHERE_1[name]
        f, seen = jit(lambda y: op(y).exp() * op(y)), []
        for n in (4, 3, 1):
            y = torch.arange(3.0 * n, requires_grad=True).view(3, n).t() * 1
            out = f(y)
            y.detach().add_(1)
            error = caught(out.sum().backward)
            seen.append((error is None, y.stride()))
        return seen

    same_training(program, plain=None)


def test_a_saved_leaf_that_a_write_gives_a_history():
    """The pass reads nothing of it."""

    def fn(x, y, z, n):
        part = y[:n]
        y = z @ y
        result = x.sin()
        z.add_(part)
        return result

    def program(jit):
        f, x, seen = jit(fn), leaf(2), []
        caught(lambda: f(0, 1, 1, 0))  # from now on, n varies
        for n in (1, 5):
            z = torch.randn(5)
            f(x * 1, leaf(5), z, n).sum().backward()
            seen.append((x.grad.clone(), z))
        return seen

    same_training(program, plain=None)
