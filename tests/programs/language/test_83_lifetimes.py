"""When objects die: what a program lets go of behind a break is freed there, and what it holds lives on.

PYTEST_DONT_REWRITE
"""

import functools
import gc
import weakref

import torch

from tests.capture.capturing import captured
from tests.programs.program import X, program


class Box:
    def __init__(self, value):
        self.value = value


LIVE = []


class Counted:
    def __init__(self):
        LIVE.append(1)

    def __del__(self):
        LIVE.pop()


def said(*values):
    print(*values)


@program(graphs=2, breaks="unknown_call print print unknown_call print")
def tensor_deleted_behind_a_break(x):
    y = x * 2
    ref = weakref.ref(y)
    print("one")
    z = y.sum()
    print("two")
    del y
    print(ref() is None)
    return z


@program(graphs=2, breaks="unknown_call unknown_call")
def object_asked_for_twice(x):
    box = Box(x * 2)
    ref = weakref.ref(box)
    alive = ref() is box
    del box
    return x + 1, alive, ref() is None


@program(graphs=3, breaks="unknown_call print print print")
def tensor_rebound_behind_a_break(x):
    y = x * 2
    ref = weakref.ref(y)
    print("one")
    y = y + 1
    print("two")
    print(ref() is None)
    return y * 2


@program(graphs=2, breaks="unknown_call print unknown_call print")
def argument_deleted_in_an_inlined_function(x):
    y = [x * 2]
    ref = weakref.ref(y[0])
    return deletes_its_argument(y.pop(), ref)


def deletes_its_argument(y, ref):
    print("one")
    z = y + 1
    del y
    print(ref() is None)
    return z


@program(graphs=3, breaks="print unknown_call print print unknown_call print")
def variable_of_an_inlined_function(x):
    ref = makes_a_tensor(x)
    print(ref() is None)
    return x + 1


def makes_a_tensor(x):
    print("one")
    y = x * 2
    ref = weakref.ref(y)
    print("two")
    z = y + 1
    print(ref() is None)
    return ref if z.dim() else None


@program(graphs=2, breaks="unknown_call print unknown_call print")
def tensor_on_the_stack(x):
    def passes(y, n):
        return y

    boxes = [x * 2]
    ref = weakref.ref(boxes[0])
    z = passes(boxes.pop(), print("one")) + 1
    print(ref() is None)
    return z


@program(breaks="unknown_call print")
def object_that_is_not_read_again(x):
    box = Box(x)
    ref = weakref.ref(box)
    print("one")
    return ref().value + 1


@program(breaks="unknown_call print")
def object_from_a_call_that_is_not_read_again(x):
    partial = weakref.proxy(functools.partial(int, base=2)) if x is None else functools.partial(int)
    ref = weakref.ref(partial)
    print("one")
    return x + (ref() is not None)


class Temporary:
    """As tempfile.TemporaryDirectory: what it gives is gone with it."""

    def __init__(self):
        self.content = [1]
        weakref.finalize(self, self.content.clear)


@program(graphs=1, breaks="library_call print")
def content_lives_as_long_as_its_holder(x):
    holder = Temporary()
    content = holder.content
    print("one")
    return x + len(content)


@program(graphs=1, breaks="unknown_call print finalizer print")
def finalizer_runs_at_del(x):
    counted = Counted()
    print(len(LIVE))
    del counted
    print(len(LIVE))
    return x + 1


@program(graphs=1, breaks="unknown_call print finalizer print")
def finalizer_runs_at_rebinding(x):
    counted = Counted()
    print(len(LIVE))
    counted = x + 1
    print(len(LIVE))
    return counted


@program(graphs=1, breaks="unknown_call finalizer print")
def finalizer_of_a_result_nobody_wants(x):
    Counted()
    print(len(LIVE))
    return x + 1


@program(breaks="unknown_call")
def finalizer_of_a_variable_of_an_inlined_function(x):
    def inner():
        counted = Counted()
        return len(LIVE), counted is None

    return x + 1, inner(), len(LIVE)


@program(breaks="unknown_call")
def finalizer_of_an_argument(x):
    return x + 1, (lambda counted: len(LIVE))(Counted()), len(LIVE)


def clear(items):
    items.clear()


def overwrite(items):
    items[0] = None


def empty(items):
    items[:] = []


@program(calls=[(clear, X), (overwrite, X), (empty, X)], graphs=0, breaks="unknown_call")
def finalizer_of_an_item(let_go, x):
    items = [Counted()]
    seen = [len(LIVE)]
    let_go(items)
    return x + 1, seen, len(LIVE)


class Made:
    def __new__(cls, value):
        made = object.__new__(cls)
        made.value = value
        return made

    def __del__(self):
        LIVE.append(self.value)


@program(before=LIVE.clear, state=lambda: list(LIVE), graphs=2, breaks="unknown_call finalizer")
def finalizer_of_an_object_made_by_new(x):
    made = Made(3)
    y = x + made.value
    del made
    return y * len(LIVE)


def test_state_of_a_first_call_is_freed():
    """The capture itself holds nothing either, so that no collection of garbage is needed."""
    from frameloom import jit

    alive = []

    @jit(backend=lambda graph, examples: graph)
    def f(x):
        y = x * 2
        ref = weakref.ref(y)
        print("one")
        z = y + 1
        del y
        alive.append(ref() is not None)
        print("two")
        return z

    with torch.no_grad():
        for _ in range(2):
            f(X)
    assert alive == [False, False]


def test_cache_of_a_function_made_here():
    """New code does not hold it."""

    def f(x):
        @functools.lru_cache
        def double(n):
            return 2 * n

        ref = weakref.ref(double)
        print("one")
        del double
        gc.collect()
        print(ref() is None)
        return x + 1

    captured(f, X)
