"""Small programs that are called very often: lists, dictionaries, classes, closures, generators and exceptions of Python."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import gc
from typing import Any

import torch

from frameloom import jit
from tests.flat.making import Call, every, of, vectors


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
def printed() -> Call:
    import io

    def fn(x: Any, out: Any) -> Any:
        y = x * 2
        print(x.shape, file=out)
        return y + 1

    f, xs = jit(fn), vectors()
    return lambda k: f(of(xs, k), io.StringIO())
