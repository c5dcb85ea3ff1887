"""Calls that are like earlier ones are recorded as those were, without being made: the graph is the same."""

import pytest
import torch

from frameloom.capture.recording.call_cache import Calls
from frameloom.capture.recording.recorder import Recorder
from tests.capture.capturing import jitted
from tests.helpers import check


@pytest.fixture
def counted(monkeypatch):
    """How many calls were made, by function."""
    made = {}
    run = Recorder.run

    def counting(self, fn, args, kwargs):
        name = getattr(fn, "__name__", str(fn))
        made[name] = made.get(name, 0) + 1
        return run(self, fn, args, kwargs)

    monkeypatch.setattr(Recorder, "run", counting)
    return made


def text(fn, *args):
    """What the graphs of `fn` say, whatever their nodes are called."""
    function, runner = jitted(fn)
    function(*[a.clone() for a in args])
    assert not runner.breaks
    return [_text(g) for g in runner.graphs]


def _text(captured):
    lines, number = [], {}
    for n in captured.graph.nodes:
        number[n] = len(number)
        args = torch.fx.node.map_arg((n.args, n.kwargs), lambda a: f"%{number[a]}")
        target = captured.constants.get_buffer(n.target) if n.op == "get_attr" else n.target
        lines.append((str(target), str(args), _value(n.meta.get("val")), "grad" in n.meta))
    return lines


def _value(val):
    if isinstance(val, torch.Tensor):
        return (tuple(val.shape), val.stride(), val.storage_offset(), val.dtype, str(val.device))
    return type(val)


def in_place(x):
    for k in range(6):
        x.mul_(0.5).add_(x * x, alpha=-0.25)
        y = x.clamp(min=0.0)
        y[y > 1] = 0.5
        x.copy_(y)
    return x + 1


def fresh(x):
    out = []
    for _ in range(5):
        z = torch.zeros_like(x)
        z.add_(x).lerp_(x * 2, 0.5)
        z /= 3
        out.append(z)
    return out


def views(x):
    out = []
    for _ in range(4):
        y = x.t()
        out.append(y @ x + (x @ x.t()).t())
        x = x + 1
        x[0].add_(1)
        x.view(-1).mul_(2)
        x = x.abs()
    return out


def several(x):
    out = []
    for _ in range(4):
        a, b = x.chunk(2)
        values, indices = torch.sort(a + b)
        m, v = torch.var_mean(values, 0)
        out += [values, indices, m, v, torch._foreach_add([a, b], 1.0)[1]]
    return out


def numbers(x):
    return [x * k + (-0.0 if k % 2 else 0.0) + (1 if k % 2 else 1.0) for k in range(6)]


def dtypes(x):
    return [
        f(x) * 2
        for f in (torch.Tensor.double, torch.Tensor.float, torch.Tensor.int)
        for _ in range(3)
    ]


def modes(x):
    out = []
    for k in range(6):
        with torch.set_grad_enabled(bool(k % 2)):
            out.append(x * 2)
    return out


def defaults(x):
    out = [torch.tensor(1.5) * x]
    torch.set_default_dtype(torch.float64)
    try:
        out.append(torch.tensor(1.5) * x)
    finally:
        torch.set_default_dtype(torch.float32)
    return [*out, torch.tensor(1.5) * x]


def draws(x):
    return [torch.dropout(x, 0.5, True) + torch.rand_like(x) for _ in range(3)]


def constants(x):
    return [x + torch.tensor([1.0, 2.0, 3.0, 4.0]) for _ in range(3)] + [
        x + torch.tensor(1.0) for _ in range(3)
    ]


ALL = (in_place, fresh, views, several, numbers, dtypes, modes, defaults, draws, constants)


@pytest.mark.parametrize("fn", ALL, ids=lambda f: f.__name__)
def test_the_graph_is_that_of_calls_that_are_made(fn, monkeypatch):
    x = torch.randn(4, 4)
    with torch.no_grad():
        known = text(fn, x)
        monkeypatch.setattr(Calls, "arguments", lambda self, fn, args, kwargs: None)
        assert text(fn, x) == known


@pytest.mark.parametrize("fn", ALL, ids=lambda f: f.__name__)
def test_it_computes_the_same(fn):
    check(fn, torch.randn(4, 4))


def test_the_same_call_is_made_once(counted):
    def f(xs):
        for x in xs:
            x.mul_(0.5).add_(torch.zeros_like(x), alpha=2)
        return [x.sin() for x in xs]

    function, _ = jitted(f)
    function([torch.randn(3, 4) for _ in range(10)])
    # What is made within the call lies in memory as an argument does, but says nothing of gradients.
    assert max(counted.values()) <= 2, counted


def test_an_argument_that_is_given_twice(counted):
    def f(x, y):
        return x * y, x * x, y * y, y * x

    function, _ = jitted(f)
    x, y = torch.randn(3), torch.randn(3)
    for a, b in zip(function(x, y), f(x, y), strict=True):
        torch.testing.assert_close(a, b)
    assert counted["mul"] == 2


def test_tensors_that_share_memory():
    def f(x):
        a, b = x[:4], x[4:]
        a.add_(b)
        c, d = x[:4], x[2:6]
        e = c.clone()
        e.add_(d)
        b.add_(a)
        return c * d, c * c, e

    check(f, torch.randn(8))


def test_one_call_that_writes_to_tensors_that_share_memory():
    def f(x):
        a, b, c = x + 1, x + 2, x + 3
        torch._foreach_mul_([a, b], 3)
        torch._foreach_mul_([c, c.detach()], 3)
        return a, b, c

    check(f, torch.randn(8))


def test_writes_are_counted_for_autograd():
    """What is saved for the backward pass and then changed is an error, in the program's words."""

    def f(x, w):
        with torch.no_grad():
            u = x * 1
            u.add_(1)
            s = x * 1
        y = (w * s).sum()
        with torch.no_grad():
            s.add_(1)
        y.backward()
        return w.grad

    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    for function in (f, jitted(f)[0]):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            function(x, w)


def test_numbers_that_change_from_call_to_call():
    def f(xs, rates):
        return [x.add(x, alpha=r) * r for x, r in zip(xs, rates, strict=True)]

    function, runner = jitted(f)
    xs = [torch.randn(3) for _ in range(4)]
    for k in range(4):
        rates = [0.5 + k * j for j in range(4)]
        for a, b in zip(function(xs, rates), f(xs, rates), strict=True):
            torch.testing.assert_close(a, b)
    assert len(runner.graphs) == 2


def test_what_follows_from_what_tensors_hold():
    """Masks and sizes that are known: the same call, other results."""

    def f(x):
        out = []
        for chosen in ([True, False, True, False], [False, True, True, True], [False] * 4):
            mask = torch.tensor(chosen)
            counts = mask.long()
            out += [x[mask], x[mask.logical_not()], torch.nonzero(counts)]
            out += [torch.repeat_interleave(x, counts), torch.unique(counts)]
            out.append(torch.equal(counts, torch.tensor([0, 1, 1, 1])))
        return out

    check(f, torch.randn(4, 4))


def test_masks_of_attention_that_are_known():
    def f(q):
        ones = torch.ones(4, 4, dtype=torch.bool)
        masks = (ones.tril(), ones, ones.triu(), ones.tril(), ones.tril(-1).logical_not())
        return [torch.nn.functional.scaled_dot_product_attention(q, q, q, m) for m in masks]

    with torch.no_grad():
        check(f, torch.randn(1, 2, 4, 8))
