"""Gradients through subclasses of torch.Tensor."""

import pytest
import torch

from frameloom import jit


class Plain(torch.Tensor):
    pass


class Counting(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def made(x, w):
    return (x * 2).as_subclass(Plain) * w


def without_gradients(x, w):
    with torch.no_grad():
        y = (x * w).as_subclass(Plain)
    return y, y * w + x


def written(x, w):
    y = (x * w).as_subclass(Plain)
    y.mul_(w)
    return y, y + 1


def both(x, w):
    y = x * w
    return y, y.as_subclass(Plain)


def of_the_input(x, w):
    return x.as_subclass(Plain), x.as_subclass(Plain) * w


def by_the_class(x, w):
    y = Plain(x.as_subclass(torch.Tensor) * w)
    return y + 1, y


def detached(x, w):
    return x * w, torch.Tensor._make_subclass(Plain, w * 2)


@pytest.mark.parametrize(
    "fn", [made, without_gradients, written, both, of_the_input, by_the_class, detached]
)
@pytest.mark.parametrize("cls", [torch.Tensor, Plain, torch.nn.Parameter])
def test_gradients_are_those_of_the_plain_call(fn, cls):
    def seen(side):
        found = []
        for n in range(2):
            torch.manual_seed(n)
            x, w = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
            x = cls(x) if cls is torch.nn.Parameter else x.as_subclass(cls).requires_grad_()
            results = side(x, w)
            results = results if isinstance(results, tuple) else (results,)
            loss = sum(r.as_subclass(torch.Tensor).cos().sum() for r in results if r.requires_grad)
            loss.backward()
            found += [*results, x.grad, w.grad]
        return found

    for got, want in zip(seen(jit(fn, fullgraph=True)), seen(fn), strict=True):
        assert type(got) is type(want)
        assert got.requires_grad is want.requires_grad
        assert got.is_leaf is want.is_leaf
        plain = [t.detach().as_subclass(torch.Tensor) for t in (got, want)]
        torch.testing.assert_close(*plain)


def test_an_own_function_has_the_effects_of_the_plain_call_and_no_others():
    def fn(x):
        return x.sin() + x.cos()

    x = torch.randn(4).as_subclass(Counting)
    compiled = jit(fn, fullgraph=True)
    Counting.calls.clear()
    fn(x)
    plain = [*Counting.calls]
    for _ in range(3):
        Counting.calls.clear()
        compiled(x)
        assert Counting.calls == plain


def test_lazy_parameters_get_their_shape_in_the_call():
    module, x = torch.nn.LazyLinear(3, bias=False), torch.ones(2, 4)
    assert jit(lambda m, x: m(x))(module, x).shape == (2, 3)
    torch.testing.assert_close(jit(lambda m, x: m(x))(module, x), module(x))


def new(x):
    return torch.nn.Parameter(x * 2)


def new_and_used(x):
    p = torch.nn.Parameter(x * 2)
    return p * 3, p


def used_alone(x):
    p = torch.nn.Parameter(x * 2)
    return (p * 3).sum()


def beside_a_history(x):
    y = x * 2
    return y, torch.nn.Parameter(y), torch.nn.Parameter(y, requires_grad=False)


def used_without_gradients(x):
    p = torch.nn.Parameter(x * 2)
    with torch.no_grad():
        p.add_(1)
    return p, x * 3


@pytest.mark.parametrize(
    "fn", [new, new_and_used, used_alone, beside_a_history, used_without_gradients]
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_new_parameters_begin_histories(fn, requires_grad):
    compiled = jit(fn)
    for n in range(2):
        torch.manual_seed(n)
        x = torch.randn(3, 4, requires_grad=requires_grad)
        got, want = compiled(x), fn(x)
        got, want = ((r,) if isinstance(r, torch.Tensor) else r for r in (got, want))
        for g, w in zip(got, want, strict=True):
            assert (type(g), g.requires_grad, g.is_leaf) == (type(w), w.requires_grad, w.is_leaf)
            torch.testing.assert_close(g, w)
            assert [g is other for other in got] == [w is other for other in want]
        gradients = []
        for side in (got, want):
            x.grad = None
            sum(r.cos().sum() for r in side if r.requires_grad).backward()
            gradients.append([x.grad, *(r.grad for r in side if r.is_leaf)])
        for g, w in zip(*gradients, strict=True):
            assert (g is None) is (w is None)
            assert g is None or torch.equal(g, w)
