"""Generators and generator expressions, used up where they are made.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import torch

from tests.programs.program import program


def count(n):
    for i in range(n):
        yield i


def halves(x):
    while x.shape[0] > 1:
        x = x[: x.shape[0] // 2 + 1] if x.shape[0] > 2 else x[:1]
        yield x


@program()
def for_over_a_generator(x):
    for i in count(3):
        x = x + i
    return x


@program()
def tensors_from_a_generator(x):
    return torch.cat(list(halves(x)))


@program()
def generator_expression(x):
    return x * sum(i * i for i in range(4)), max(n for n in (1, 3, 2))


@program()
def generator_expression_with_condition_and_two_loops(x):
    return x + sum(a * b for a in range(3) if a for b in (1, 2) if b != a)


@program()
def consumed_by_builtins(x):
    return (
        x + sum(count(4)),
        tuple(count(2)),
        dict(zip("ab", count(2))),
        sorted(count(3)),
        any(count(2)),
    )


@program()
def next_with_default(x):
    it = count(1)
    return x + next(it), next(it, "end"), next(it, None)


@program()
def lazy_as_in_python(x):
    log = []

    def noisy():
        for i in range(3):
            log.append(i)
            yield i

    it = noisy()
    log.append("made")
    first = next(it)
    log.append("first")
    return x + first + sum(it), log


@program()
def send(x):
    def running():
        total = 0
        while True:
            got = yield total
            if got is None:
                return
            total += got

    it = running()
    next(it)
    return x + it.send(3), it.send(4)


@program()
def returned_value(x):
    def inner():
        yield 1
        return x * 2

    it = inner()
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return stop.value


@program()
def yield_from_generators(x):
    def inner(n):
        yield n
        return n * 10

    def outer():
        a = yield from inner(1)
        b = yield from inner(2)
        yield a + b

    return [x * v for v in outer()]


@program()
def yield_from_a_list(x):
    def outer():
        yield 0
        yield from [1, 2]
        yield from range(3, 5)

    return x + sum(outer())


@program()
def send_through_yield_from(x):
    def inner():
        got = yield "first"
        return got

    def outer():
        result = yield from inner()
        yield result

    it = outer()
    next(it)
    return it.send(x + 1)


@program()
def throw_into(x):
    log = []

    def inner():
        try:
            yield 1
        except ValueError as error:
            log.append(str(error))
        yield 2

    it = inner()
    next(it)
    return x + it.throw(ValueError("thrown")), log


@program()
def throw_through_yield_from(x):
    def inner():
        try:
            yield 1
        except KeyError:
            return 5

    def outer():
        yield (yield from inner())

    it = outer()
    next(it)
    return x + it.throw(KeyError())


@program()
def close_runs_finally(x):
    log = []

    def inner():
        try:
            yield 1
        finally:
            log.append("closed")

    it = inner()
    n = next(it)
    it.close()
    log.append("after")
    return x + n, log, list(it)


@program(graphs=0, plain=True)
def early_exit_of_a_loop_closes(x):
    log = []

    def inner():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    for n in inner():
        break
    log.append("after")
    return x + n, log


@program()
def early_exit_without_cleanup(x):
    for n in count(10):
        if n == 3:
            break
    return x + n


@program()
def exception_in_a_generator(x):
    def inner():
        yield 1
        raise ValueError("inside")

    total = 0
    try:
        for n in inner():
            total += n
    except ValueError as error:
        return x + total, str(error)


@program()
def stop_iteration_inside_becomes_runtime_error(x):
    def inner():
        yield 1
        next(iter(()))

    try:
        list(inner())
    except RuntimeError as error:
        return x + 1, str(error), type(error.__cause__).__name__


@program()
def handler_around_a_yield(x):
    def inner():
        try:
            raise KeyError("a")
        except KeyError as error:
            yield str(error)
        yield "after"

    out = []
    for text in inner():
        try:
            raise ValueError(text)
        except ValueError as error:
            out.append(str(error))
    return x + 1, out


@program()
def recursive_generator(x):
    def walk(tree):
        for item in tree:
            if isinstance(item, list):
                yield from walk(item)
            else:
                yield item

    return x + sum(walk([1, [2, [3, 4]], 5]))


@program()
def generator_method(x):
    class_free = Numbers(3)
    return x + sum(class_free), sum(class_free.twice())


class Numbers:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        yield from range(self.n)

    def twice(self):
        return (2 * i for i in self)


@program()
def zipped_generators(x):
    return [x * a + b for a, b in zip(count(3), (i + 1 for i in count(9)))]


@program(graphs=2, breaks="print")
def break_in_the_loop_over_a_generator(x):
    values = list(count(3))
    for i in values:
        x = x + i
        if i == 1:
            print("one")
    return x * 2


@program(graphs=2, breaks="generator opaque_iterable print opaque_iterable")
def print_while_a_generator_waits(x):
    it = count(3)
    n = next(it)
    print("waiting")
    return x + n + sum(it)
