"""Small programs that are called very often: Python, its objects and its exceptions.  Each function makes one: it returns what is done in the k-th call.

Sizes are 0, 1 and others in turn; `calls` says how many are done where a call takes long, as a share of those asked for.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import torch

from frameloom import jit
from tests.flat.making import Call, calls, every, matrices, of, vectors


@every
def pointwise() -> Call:
    f, xs = jit(lambda x: torch.relu(x + 1) * 2), vectors()
    return lambda k: f(of(xs, k))


@every
def sizes_as_they_are() -> Call:
    f, xs = jit(lambda x: torch.relu(x + 1) * 2, dynamic=False), vectors()
    return lambda k: f(of(xs, k))


@every
def sizes_that_vary() -> Call:
    f, xs = jit(lambda x: (x * x.shape[0]).sum(0) + x.numel(), dynamic=True), matrices()
    return lambda k: f(of(xs, k))


@every
def ever_other_sizes() -> Call:
    f = jit(lambda x: x[: x.shape[0] // 2] * 2, dynamic=True)
    return lambda k: f(torch.empty(k % 997))


@every
def ever_other_sizes_of_a_library_call() -> Call:
    f, w = jit(lambda x, w: torch.mm(x, w).relu(), dynamic=True), torch.randn(3, 4)
    return lambda k: f(torch.empty(k % 97, 3), w)


@every
def numbers_that_vary() -> Call:
    f, xs = jit(lambda x, a, b: x * a + b), vectors()
    return lambda k: f(of(xs, k), k % 13, k / 7)


@every
def a_check_of_data() -> Call:
    def fn(x: Any) -> Any:
        if (x > 100).any():
            raise ValueError("large")
        return x * 2

    f, xs = jit(fn), [*vectors(), torch.full((3,), 1000.0)]

    def call(k: int) -> None:
        with contextlib.suppress(ValueError):
            f(of(xs, k))

    return call


@every
def views() -> Call:
    def fn(x: Any) -> Any:
        return x.t(), x[:, 1:], x.reshape(-1), x

    f, xs = jit(fn), matrices()
    return lambda k: f(of(xs, k))


@every
def writes() -> Call:
    def fn(x: Any, seen: list[Any]) -> Any:
        x.mul_(0.5)
        x[:1] = 0
        seen.append(x.sum())
        return x.view(-1)

    f, xs = jit(fn), matrices()
    return lambda k: f(of(xs, k), [])


@every
def shared_memory() -> Call:
    f, xs = jit(lambda x, y: x.add_(y) * y), vectors()
    return lambda k: f(of(xs, k), of(xs, k) if k % 2 else of(xs, k)[:])


@every
def resized_and_set() -> Call:
    def fn(x: Any) -> Any:
        y = x.clone()
        y.resize_(2, 2)
        y.fill_(1)
        return y

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def plain_execution() -> Call:
    def fn(x: Any) -> Any:
        return gc.isenabled(), [x]

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def under_a_mode() -> Call:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # fmt: skip
            return func(*args, **(kwargs or {}))

    f, xs = jit(lambda x: x * 2 + 1), vectors()

    def call(k: int) -> Any:
        with Mode():
            return f(of(xs, k))

    return call


@every
def under_a_transform() -> Call:
    f, xs = jit(lambda x: (x * x).sum()), vectors()
    return lambda k: torch.func.grad(f)(of(xs, k))


@every
def sizes_of_the_data() -> Call:
    f, xs = jit(lambda x: (x[x > 0] * 2, x.nonzero(), x.unique())), vectors()
    return lambda k: f(of(xs, k))


@every
def numbers_of_the_data() -> Call:
    f, xs = jit(lambda x: (x * 2).sum().item() + 1), vectors()
    return lambda k: f(of(xs, k))


@every
def numbers_that_decide() -> Call:
    def fn(x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def arrays() -> Call:
    f, xs = jit(lambda x: torch.from_numpy(x.numpy() + 1) * 2), vectors()
    return lambda k: f(of(xs, k))


@every
def other_dtypes() -> Call:
    kinds = (torch.float64, torch.int64, torch.bool, torch.complex64, torch.float16, torch.int8)
    f, xs = jit(lambda x: x + x), [torch.ones(n).to(d) for n in (0, 1, 3) for d in kinds]
    return lambda k: f(of(xs, k))


@every
def frames_that_only_python_calls() -> Call:
    def key(x: Any) -> Any:
        return float((x * 2).sum())

    f, xs = jit(lambda xs: sorted(xs, key=key)), vectors()
    return lambda k: f([of(xs, k), of(xs, k + 1)])


@calls(0.05)
def functions_dropped() -> Call:
    """Each call compiles."""
    xs = vectors(True)

    def call(k: int) -> None:
        m = k % 3

        def fn(x: Any) -> Any:
            y = (x * 2).sin()
            gc.isenabled()
            return y + m

        jit(fn)(of(xs, k)).sum().backward()

    return call


@calls(0.05)
def modules_dropped() -> Call:
    xs = matrices()

    def call(k: int) -> None:
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
        jit(net)
        net(of(xs, k)).sum().backward()

    return call


@calls(0.05)
def exceptions_while_compiling() -> Call:
    """A function that raises whenever it is compiled, each time another one."""
    xs = vectors()

    def call(k: int) -> None:
        def fn(x: Any) -> Any:
            y = x * 2
            raise ValueError(y)

        with contextlib.suppress(ValueError):
            jit(fn)(of(xs, k))

    return call
