"""Small programs that are called very often: Python, its objects and its exceptions.  Each function makes one: it returns what is done in the k-th call.

Sizes are 0, 1 and others in turn; `calls` says how many are done where a call takes long, as a share of those asked for.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
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
def strings_and_none() -> Call:
    def fn(x: Any, how: str, y: Any = None) -> Any:
        return x + 1 if how == "up" else x - 1 if y is None else x * y

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k), "up" if k % 3 else "down", None if k % 2 else of(xs, k))


@every
def guards_that_fail() -> Call:
    """More cases than there are entries: most calls run plainly."""
    f, xs = jit(lambda x, name: x + len(name), dynamic=False), vectors()
    return lambda k: f(of(xs, k), "a" * (k % 40))


@every
def a_global_that_changes() -> Call:
    space: dict[str, Any] = {"A": 1.0, "torch": torch}
    exec("def fn(x):\n    return x * A", space)
    f, xs = jit(space["fn"]), vectors()

    def call(k: int) -> Any:
        space["A"] = k * 0.5
        return f(of(xs, k))

    return call


@every
def new_objects_in_a_global() -> Call:
    space: dict[str, Any] = {"table": {}, "torch": torch}
    exec("def fn(x):\n    return x * table['a'][0]", space)
    f, xs = jit(space["fn"]), vectors()

    def call(k: int) -> Any:
        space["table"] = {"a": [of(xs, k)]}
        return f(of(xs, k))

    return call


@every
def a_break() -> Call:
    def fn(x: Any) -> Any:
        y = x * 2
        gc.isenabled()
        return y + 1

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def a_break_in_a_with_and_a_try() -> Call:
    @contextlib.contextmanager
    def around(seen: list[Any]) -> Any:
        seen.append(1)
        try:
            yield seen
        finally:
            seen.clear()

    def fn(x: Any) -> Any:
        with around([x]) as seen:
            try:
                y = x * 2
                gc.isenabled()
                if x.shape[0] == 1:
                    raise ValueError(y)
            except ValueError as error:
                y = error.args[0]
            return y + len(seen)

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def an_exception() -> Call:
    def fn(x: Any, k: int) -> Any:
        y = x + k
        if k % 3 == 1:
            raise ValueError(y)
        return y

    f, xs = jit(fn), vectors(True)

    def call(k: int) -> None:
        with contextlib.suppress(ValueError):
            f(of(xs, k), k % 7)

    return call


@every
def an_exception_of_an_op() -> Call:
    f, xs = jit(lambda x, i: x.exp()[i] * 2), [torch.randn(n, 3) for n in (3, 1, 5)]
    places = [torch.tensor([0]), torch.tensor([9])]

    def call(k: int) -> None:
        with contextlib.suppress(IndexError):
            f(of(xs, k), of(places, k))

    return call


@every
def an_exception_behind_a_break() -> Call:
    def fn(x: Any) -> Any:
        y = x.exp()
        gc.isenabled()
        z = y * 2
        raise ValueError(z)

    f, xs = jit(fn), vectors(True)

    def call(k: int) -> None:
        with contextlib.suppress(ValueError):
            f(of(xs, k))

    return call


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
def lists() -> Call:
    def fn(xs: list[Any], more: Any) -> Any:
        more.append(xs[0] + 1)
        return [x * 2 for x in xs], more[-1], xs[::-1]

    f, xs = jit(fn), vectors()
    return lambda k: f([of(xs, k)] * (k % 3 + 1), [1] * (k % 2))


@every
def lists_of_ever_other_lengths() -> Call:
    f, x = jit(lambda xs: sum(xs) + len(xs)), torch.randn(3)
    return lambda k: f([x] * (k % 23 + 1))


@every
def dictionaries() -> Call:
    def fn(table: dict[str, Any]) -> Any:
        table["new"] = table.pop("x") * 2
        return {k: v + 1 for k, v in table.items()}

    f, xs = jit(fn), vectors()
    return lambda k: f({"x": of(xs, k), "abc"[k % 3]: of(xs, k)})


@every
def objects() -> Call:
    class Thing:
        def __init__(self, x: Any) -> None:
            self.x, self.n = x, 0

        def twice(self) -> Any:
            self.n += 1
            self.last = self.x * 2
            return self.last

    f, xs = jit(lambda thing: (thing.twice(), Thing(thing.x).twice(), thing)), vectors()
    return lambda k: f(Thing(of(xs, k)))


@every
def records() -> Call:
    Pair = collections.namedtuple("Pair", "a b")

    @dataclasses.dataclass
    class Box:
        x: Any
        n: int = 1

    def fn(p: Any, box: Any) -> Any:
        return Pair(p.b, p.a + box.x), Box(box.x * 2), dataclasses.replace(box, n=4)

    f, xs = jit(fn), vectors()
    return lambda k: f(Pair(of(xs, k), of(xs, k)), Box(of(xs, k)))


@every
def state_of_an_object() -> Call:
    class Cache:
        def __init__(self) -> None:
            self.kept: Any = None
            self.n = 0

    cache = Cache()

    def fn(x: Any) -> Any:
        cache.n += 1
        cache.kept = x if cache.kept is None or cache.kept.shape != x.shape else cache.kept + x
        return cache.kept * 2

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def new_functions_as_arguments() -> Call:
    f, xs = jit(lambda x, g: g(x) * 2), vectors()

    def call(k: int) -> Any:
        m = k % 3
        return f(of(xs, k), lambda x: x + m), f(of(xs, k), functools.partial(torch.add, other=m))

    return call


@every
def new_classes() -> Call:
    f, xs = jit(lambda thing, x: thing.k * x), vectors()
    return lambda k: f(type("Thing", (), {"k": 2.0})(), of(xs, k))


@every
def a_generator_given() -> Call:
    f, xs = jit(lambda xs: sum(x * 2 for x in xs)), vectors()
    return lambda k: f(of(xs, k) for _ in range(k % 3 + 1))


@every
def a_generator_inside() -> Call:
    def each(x: Any, n: int) -> Any:
        for k in range(n):
            yield x * k

    def fn(x: Any) -> Any:
        made = each(x, 4)
        return next(made) + sum(made), zip(each(x, 2), [1, 2], strict=True)

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def a_generator_jitted() -> Call:
    def fn(x: Any) -> Any:
        for _ in range(3):
            x = x + 1
            yield x

    f, xs = jit(fn), vectors()

    def call(k: int) -> Any:
        made = f(of(xs, k))
        return next(made) if k % 2 else list(made)

    return call


@every
def a_closure_made() -> Call:
    def fn(x: Any) -> Any:
        y = x * 2

        def later(z: Any) -> Any:
            nonlocal y
            y = y + z
            return y

        return later, lambda: y

    f, xs = jit(fn), vectors()

    def call(k: int) -> Any:
        later, now = f(of(xs, k))
        return later(of(xs, k)), now()

    return call


@every
def results_in_a_cycle() -> Call:
    def fn(x: Any) -> Any:
        node: dict[str, Any] = {"x": x * 2}
        node["self"] = node
        return node

    f, xs = jit(fn), vectors(True)
    return lambda k: f(of(xs, k))


@every
def plain_execution() -> Call:
    def fn(x: Any) -> Any:
        return gc.isenabled(), [x]

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k))


@every
def wrong_arguments() -> Call:
    f, xs = jit(lambda x, *, k=1: x * k), vectors()

    def call(k: int) -> None:
        with contextlib.suppress(TypeError):
            f(of(xs, k), other=k)
        with contextlib.suppress(TypeError):
            f()
        f(of(xs, k), **{"k": k % 2})

    return call


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
def printed() -> Call:
    import io

    def fn(x: Any, out: Any) -> Any:
        y = x * 2
        print(x.shape, file=out)
        return y + 1

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k), io.StringIO())


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
