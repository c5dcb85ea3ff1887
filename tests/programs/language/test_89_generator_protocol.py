"""What is sent and thrown into generators, in all orders: what comes out, what is raised, and what the generators have seen.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import itertools

import pytest
import torch

from frameloom import jit, reset

SEEN = []


def plain(n):
    got = yield 1
    SEEN.append(got)
    return n, (yield got)


def catching(n):
    for k in range(2):
        try:
            SEEN.append((yield k))
        except ValueError as error:
            SEEN.append((str(error), type(error.__context__).__name__))
        finally:
            SEEN.append("finally")


def swallowing(n):
    try:
        yield n
    except BaseException as error:
        SEEN.append(type(error).__name__)
    return 7


def turning(n):
    try:
        yield n
    except GeneratorExit:
        raise KeyError("turned") from None
    except ValueError as error:
        raise StopIteration(4) from error


def within(inner):
    def outer(n):
        try:
            SEEN.append(("returned", (yield from inner(n))))
            yield "behind"
        except BaseException as error:
            SEEN.append((type(error).__name__, str(error), type(error.__context__).__name__))
            yield "handled"
        return "end"

    return outer


STEPS = {
    "next": next,
    "send": lambda it: it.send(3),
    "send None": lambda it: it.send(None),
    "throw": lambda it: it.throw(ValueError("thrown")),
    "exit": lambda it: it.throw(GeneratorExit),
    "close": lambda it: it.close(),
    "list": list,
}


def told(step, it):
    try:
        return step(it)
    except BaseException as error:
        cause, context = type(error.__cause__).__name__, type(error.__context__).__name__
        return type(error).__name__, str(error), cause, context, getattr(error, "value", None)


@pytest.mark.parametrize("made", [plain, catching, swallowing, turning])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_generators_answer_as_plain_ones(made, depth):
    for _ in range(depth):
        made = within(made)
    orders = [*itertools.product(STEPS, repeat=2), *(("next", s, "next") for s in STEPS)]
    for names in orders:
        steps = [STEPS[name] for name in names]

        def run(x, made=made, steps=steps):
            it = made(5)
            return [told(step, it) for step in steps], x + 1

        found = []
        for fn in (run, jit(run, backend="eager")):
            SEEN.clear()
            answers, _ = fn(torch.ones(2))
            found.append((answers, list(SEEN)))
        assert found[1] == found[0], names
        reset()
