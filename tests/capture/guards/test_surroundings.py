"""Calls of jitted functions under everything that watches or changes what PyTorch's functions do: the same as plain calls, warm or not."""

import threading

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from frameloom import jit
from tests.watching_modes import Functions, Ops

X = torch.arange(12.0).reshape(4, 3) / 7


def function(x):
    return x.sin() * 2 + x.cos()


def dual_level(g):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(g(forward_ad.make_dual(X, X))).tangent


def checkpointed(g, reentrant):
    y = X.clone().requires_grad_()
    checkpoint(g, y, use_reentrant=reentrant).sum().backward()
    return y.grad


def saved_tensors(g):
    shapes = []

    def pack(t):
        shapes.append(tuple(t.shape))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = X.clone().requires_grad_()
        g(y).sum().backward()
    return shapes


class Subclass(torch.Tensor):
    pass


def watched(mode):
    def run(g):
        with mode() as active:
            result = g(X)
        return active.seen, result

    return run


def fake_mode(g):
    with FakeTensorMode():
        return g(torch.empty(3, 4)).shape


def fake_tensor(g):
    return type(g(FakeTensorMode().from_tensor(X)))


def under(context):
    def run(g):
        with context():
            return g(X)

    return run


def threads(g):
    results = []
    workers = [threading.Thread(target=lambda: results.append(g(X))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


SURROUNDINGS = {
    "vmap": lambda g: torch.vmap(g)(X),
    "grad": lambda g: torch.func.grad(lambda a: g(a).sum())(X),
    "jvp": lambda g: torch.func.jvp(g, (X,), (X,))[1],
    "vjp": lambda g: torch.func.vjp(g, X)[1](X)[0],
    "hessian": lambda g: torch.func.hessian(lambda a: g(a).sum())(X[0]),
    "functionalize": lambda g: torch.func.functionalize(g)(X),
    "dual_level": dual_level,
    "checkpoint": lambda g: checkpointed(g, False),
    "checkpoint_reentrant": lambda g: checkpointed(g, True),
    "saved_tensors_hooks": saved_tensors,
    "function_mode": watched(Functions),
    "dispatch_mode": watched(Ops),
    "fake_mode": fake_mode,
    "fake_tensor": fake_tensor,
    "meta": lambda g: g(X.to("meta")).device,
    "subclass": lambda g: type(g(X.as_subclass(Subclass))),
    "jit_trace": lambda g: torch.jit.trace(g, X)(X * 2),
    "make_fx": lambda g: len(make_fx(g)(X).graph.nodes),
    "default_device": under(lambda: torch.device("meta")),
    "inference_mode": under(torch.inference_mode),
    "sparse": lambda g: g(X.to_sparse()),
    "nested": lambda g: g(torch.nested.nested_tensor([X[0], X[1]])).is_nested,
    "conjugated": lambda g: g(torch.complex(X, X).conj()),
    "threads": threads,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SURROUNDINGS)
@pytest.mark.parametrize("warm", [False, True])
def test_as_plain(name, warm):
    run, jitted = SURROUNDINGS[name], jit(function)
    if warm:
        jitted(X), jitted(X[0])
    results = []
    for g in (function, jitted):
        try:
            results.append(run(g))
        except Exception as error:
            results.append((type(error), str(error)))
    same(*results)


def same(want, got):
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(want, tuple | list) and len(want) == len(got):
        for a, b in zip(want, got, strict=True):
            same(a, b)
    else:
        assert got == want


@pytest.mark.parametrize("grad", [False, True])
def test_hooks_for_saved_tensors_see_what_is_computed_alone(grad):
    """Gradient mode is turned on inside: capturing would show them its own tensors."""

    def fn(x, w):
        with torch.enable_grad():
            return x @ w

    def pack(t):
        packed.append(t.tolist())
        return t

    w = torch.ones(2, 2, requires_grad=True)
    seen = []
    for f in (fn, jit(fn)):
        packed = []
        with torch.set_grad_enabled(grad), torch.autograd.graph.saved_tensors_hooks(pack, pack):
            f(torch.ones(2, 2), w)
        seen.append(packed)
    assert seen[0] == seen[1]
