"""Coroutines and asynchronous generators that the jitted function drives itself.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import asyncio
import inspect
import sys
import types

import pytest
import torch

from frameloom import FullGraphError, jit
from tests.programs.program import X, program
from tests.observe import assert_same_call, observe


async def times(a, k):
    return a * k


async def chain(a):
    b = await times(a, 2)
    return await times(b, 3) + b


class Asked:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        got = yield self.value
        return self.value * got


def driven(coroutine, given=None):
    """Runs a coroutine to its end, and answers each of its questions with 2."""
    while True:
        try:
            coroutine.send(given)
        except StopIteration as end:
            return end.value
        given = 2


class Manager:
    def __init__(self, swallows=True):
        self.log, self.swallows = [], swallows

    async def __aenter__(self):
        self.log.append("in")
        return self

    async def __aexit__(self, kind, error, traceback):
        await Asked(1)
        self.log.append(kind)
        return self.swallows


async def each(x):
    for k in range(3):
        yield x * k


class Countdown:
    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.n:
            raise StopAsyncIteration
        self.n -= 1
        return self.n


@program()
def awaits_coroutines(x):
    return driven(chain(x)) + 1


@program()
def awaits_an_object(x):
    async def main(a):
        return await Asked(a) + 1

    return driven(main(x))


@program()
def several_at_once(x):
    async def main(a):
        return await Asked(a) + await Asked(a + 1)

    waiting = [main(x + k) for k in range(3)]
    for coroutine in waiting:
        coroutine.send(None)
    for coroutine in reversed(waiting):
        coroutine.send(3)
    return [driven(coroutine, 4) for coroutine in waiting]


@program()
def async_with(x):
    async def main(a, m):
        async with m as same:
            a = a * 2
            same.log.append("between")
        return a

    m = Manager()
    return driven(main(x, m)), m.log


@program()
def async_with_that_swallows(x):
    async def main(a, m):
        async with m:
            a = a * 2
            raise ValueError("swallowed")
        return a

    m = Manager()
    return driven(main(x, m)), m.log


@program(breaks="exception")
def async_with_that_raises(x):
    async def main(a, m):
        async with m:
            raise ValueError("leaves")

    return driven(main(x + 1, Manager(swallows=False)))


@program()
def async_for(x):
    async def main(a):
        total = a
        async for item in each(a):
            total = total + item
        return total, [item + 1 async for item in each(a)]

    return driven(main(x))


@program()
def async_for_over_an_object(x):
    async def main(a):
        async for k in Countdown(3):
            if k == 1:
                continue
            a = a + k
        else:
            a = a * 2
        return a

    return driven(main(x))


@program()
def generator_that_awaits(x):
    async def asking(a):
        for k in range(2):
            yield await Asked(a) + k

    async def main(a):
        return [item async for item in asking(a)]

    return driven(main(x))


@program()
def generator_that_raises(x):
    async def failing(a):
        yield a
        raise KeyError("from within")

    async def main(a):
        try:
            async for item in failing(a):
                a = a + item
        except KeyError as error:
            return a, str(error), sys.exc_info()[0]

    return driven(main(x)), sys.exc_info()


@program()
def generator_that_stops_by_itself(x):
    async def stopping(a):
        yield a
        raise StopAsyncIteration

    async def main(a):
        async for item in stopping(a):
            a = a + item

    try:
        driven(main(x))
    except RuntimeError as error:
        return x + 1, str(error), type(error.__cause__)


@program(graphs=0, plain=True)
def generator_left_in_the_middle(x):
    async def main(a):
        async for item in each(a):
            return a + item

    return driven(main(x))


@program()
def thrown_into(x):
    async def main(a):
        try:
            await Asked(a)
        except ValueError:
            return a * 3

    coroutine = main(x)
    coroutine.send(None)
    try:
        coroutine.throw(ValueError("thrown"))
    except StopIteration as end:
        return end.value


@program()
def closed(x):
    log = []

    async def main(a):
        try:
            await Asked(a)
        finally:
            log.append("closed")

    coroutine = main(x)
    asked = coroutine.send(None)
    coroutine.close()
    never = times(x, 2)
    never.close()
    return asked + 1, log


@program(graphs=0, plain=True)
def dropped_in_the_middle(x):
    log = []

    async def main(a):
        try:
            await Asked(a)
        finally:
            log.append("closed")

    asked = main(x).send(None)
    return asked + 1, log


@program()
def misused(x):
    log = []

    async def stops(a):
        raise StopIteration(1)

    used = times(x, 2)
    y = driven(used)
    fresh = times(x, 2)
    for attempt in (lambda: used.send(None), lambda: fresh.send(3), lambda: driven(stops(x))):
        try:
            attempt()
        except (RuntimeError, TypeError) as error:
            log.append(str(error))
    fresh.close()
    return y + 1, log


@program()
def awaited_twice(x):
    async def main(a):
        coroutine = times(a, 2)
        b = await coroutine
        try:
            await coroutine
        except RuntimeError as error:
            return b, str(error)

    return driven(main(x))


@types.coroutine
def old_style(a):
    got = yield a
    return a * got


@program()
def coroutine_of_a_generator(x):
    async def main(a):
        return await old_style(a) + 1

    return driven(main(x)), inspect.isfunction(old_style)


@program(graphs=2, breaks="library_call")
def given_to_an_event_loop(x):
    return asyncio.run(chain(x + 1)) + 1


@program(breaks="coroutine")
def awaits_what_cannot_be_awaited(x):
    async def main(a):
        await 3

    driven(main(x + 1))


@program(breaks="print")
def breaks_within(x):
    async def main(a):
        y = a + 1
        print("within")
        return y * 2

    return driven(main(x)) + 1


@program()
def mutates_within(x):
    async def main(a):
        b = a.detach().clone()
        b.add_(1)
        await Asked(b)
        b.mul_(2)
        return b

    return driven(main(x))


# --- exceptions that several handlers see
@program(graphs=2, breaks="print")
def inner_handler_does_not_match(x):
    try:
        try:
            raise ValueError("outer")
        except KeyError:
            pass
    except ValueError:
        pass
    y = x + 1
    print("between")
    return y * 2, sys.exc_info()[0]


@program()
def handled_in_a_generator(x):
    def steps():
        try:
            raise ValueError("a")
        except ValueError:
            yield 1
            try:
                raise KeyError("b")
            except KeyError:
                pass
            yield sys.exc_info()[0]

    it = steps()
    next(it)
    return x + 1, sys.exc_info()[0], next(it), sys.exc_info()[0]


def test_a_coroutine_that_is_never_awaited_is_reported():
    def forgets(x):
        times(x, 2)
        return x + 1

    with pytest.warns(RuntimeWarning, match="coroutine 'times' was never awaited"):
        jit(forgets, backend="eager")(X)


def test_hooks_for_asynchronous_generators_are_called():
    def asynchronous(x):
        async def main(a):
            return [item async for item in each(a)]

        return driven(main(x))

    seen = []
    target = jit(asynchronous, backend="eager")
    for hook in (None, lambda generator: seen.append(generator.__name__), None):
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=hook)
        try:
            assert_same_call(observe(target, (X,)), observe(asynchronous, (X,)), "")
        finally:
            sys.set_asyncgen_hooks(*before)
    assert seen == ["each", "each"]


def test_jitted_coroutine_functions():
    target = jit(chain, backend="eager")
    generator = jit(each, backend="eager")

    async def items():
        return [item async for item in generator(X)]

    assert inspect.iscoroutinefunction(target) and inspect.isasyncgenfunction(generator)
    for _ in range(2):
        torch.testing.assert_close(asyncio.run(target(X)), X * 8)
        torch.testing.assert_close(asyncio.run(items()), [X * k for k in range(3)])


@pytest.mark.parametrize("function", [chain, each])
def test_fullgraph_refuses_jitted_coroutine_functions(function):
    """They run as plain Python, and fullgraph=True promises a graph."""
    with pytest.raises(FullGraphError, match="is a generator or coroutine"):
        jit(function, backend="eager", fullgraph=True)(X)


def test_a_jitted_function_under_an_event_loop():
    def function(x):
        async def main(a):
            return [item async for item in each(a)]

        return driven(main(x + 1))

    target = jit(function, backend="eager")

    async def main():
        await asyncio.sleep(0)
        return target(X)

    for _ in range(2):
        torch.testing.assert_close(asyncio.run(main()), function(X))
        torch.testing.assert_close(target(X), function(X))


@program()
def kinds_of_functions(x):
    driven_now = times(x, 2)
    kinds = [
        ask(value)
        for ask in (
            inspect.isgenerator, inspect.iscoroutine, inspect.isasyncgen, inspect.ismodule, inspect.isbuiltin,
            inspect.iscode, inspect.istraceback, inspect.isasyncgenfunction, inspect.isgeneratorfunction,
            inspect.isfunction, inspect.ismethod, inspect.isclass,
        )
        for value in (driven_now, each, each(x), len, torch, old_style, Manager, Manager().__aenter__, 3, x.sin)
    ]  # fmt: skip
    return driven(driven_now), kinds
