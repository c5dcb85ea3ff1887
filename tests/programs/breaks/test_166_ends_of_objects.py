"""Callbacks of weak references run where plain Python drops the last reference: between what comes before and after, whoever holds the object.

PYTEST_DONT_REWRITE
"""

import weakref

import torch

from tests.programs.program import X, program

SEEN = []


def end(*_):
    SEEN.append("end")


def say(text):
    SEEN.append(f"{text} {len(SEEN)}")


class Box:
    pass


def seen(**more):
    return dict(before=SEEN.clear, state=lambda: list(SEEN), **more)


@program(**seen(graphs=2, breaks="library_call finalizer"))
def deleted(x):
    y = x + 1
    weakref.finalize(y, end)
    say("before")
    del y
    say("after")
    return x * 2


@program(**seen(graphs=2, breaks="library_call finalizer"))
def rebound(x):
    y = x + 1
    weakref.finalize(y, end)
    say("before")
    y = x * 2
    say("after")
    return y


@program(**seen(graphs=1, breaks="library_call"))
def variable_of_an_inlined_function(x):
    def inner():
        y = x + 1
        weakref.finalize(y, end)
        return y.sum()

    say("before")
    total = inner()
    say("after")
    return total


@program(**seen(graphs=1, breaks="library_call"))
def raised_past(x):
    def inner():
        y = x + 1
        weakref.finalize(y, end)
        raise ValueError

    try:
        inner()
    except ValueError:
        say("after")
    return x * 2


def clear(held):
    held.clear()


def overwrite(held):
    held[0] = None


def pop(held):
    held.pop(0)


@program(
    **seen(
        calls=[(clear, X), (overwrite, X), (pop, X), (clear, X)], graphs=1, breaks="library_call"
    )
)
def item_of_a_list(let_go, x):
    held = [x + 1]
    weakref.finalize(held[0], end)
    let_go(held)
    say("after")
    return x * 2


@program(**seen(graphs=1, breaks="library_call"))
def value_of_a_dictionary(x):
    held = {"a": [x + 1]}
    weakref.finalize(held["a"][0], end)
    del held["a"]
    say("after")
    return x * 2


@program(**seen(graphs=1, breaks="library_call"))
def attribute(x):
    box = Box()
    box.held = x + 1
    weakref.finalize(box.held, end)
    box.held = None
    say("after")
    return x * 2


@program(**seen(graphs=1, breaks="library_call"))
def variable_of_a_closure(x):
    y = x + 1

    def use():
        return y * 2

    weakref.finalize(y, end)
    z = use()
    y = None
    say("after")
    return z


@program(**seen(graphs=2, breaks="library_call library_call finalizer"))
def two_tensors(x):
    y, z = x + 1, x + 2
    weakref.finalize(y, end)
    weakref.finalize(z, say, "z")
    del y
    say("after")
    return z * 2


@program(**seen(graphs=2, breaks="unknown_call finalizer"))
def reference_with_a_callback(x):
    y = x + 1
    ref = weakref.ref(y, end)
    del y
    say("after")
    return x * 2, ref() is None


@program(**seen(graphs=1, breaks="library_call finalizer"))
def object_of_the_program(x):
    box = Box()
    weakref.finalize(box, end)
    del box
    say("after")
    return x * 2


@program(**seen(graphs=2, breaks="library_call library_call finalizer library_call"))
def weak_dictionary_loses_a_value(x):
    held = weakref.WeakValueDictionary()
    y = x + 1
    held["a"] = y
    del y
    return x * 2, len(held)


@torch.compiler.disable
def watch(value):
    weakref.finalize(value, end)


@torch.compiler.disable
def look(value):
    pass


@program(**seen(graphs=2, breaks="library_call print"))
def watched_by_plain_code(x):
    y = x + 1
    watch(y)
    say("before")
    z = x * 2
    print(end="")
    say("after")
    return z


@program(
    **seen(calls=[(look, X), (watch, X), (look, X)], graphs=3, breaks="library_call finalizer")
)
def watched_in_some_calls(call, x):
    y = x + 1
    call(y)
    z = x * 2
    del y
    say("after")
    return z


@program(**seen(graphs=2, breaks="library_call"))
def until_the_end(x):
    y = x + 1
    weakref.finalize(y, end)
    say("before")
    return x * 2


class Counted:
    def __del__(self):
        SEEN.append("end")


@program(**seen(graphs=0, breaks="unknown_call print"))
def finalizer_of_an_item_behind_a_break(x):
    counted = Counted()
    held = [counted]
    print(end="")
    del counted
    held.clear()
    say("after")
    return x * 2
