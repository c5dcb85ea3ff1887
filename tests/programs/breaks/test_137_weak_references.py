"""Weak references to what is made here, by code that a break leaves to Python: variables keep it alive until they are deleted or rebound.

PYTEST_DONT_REWRITE
"""

import weakref

from torch import nn

from tests.programs.program import X, program


@program(graphs=2, breaks="unknown_call")
def reference_to_a_tensor(x):
    y = x + 1
    ref = weakref.ref(y)
    return ref() * 2


@program(graphs=3, breaks="unknown_call print print")
def reference_is_read_behind_two_breaks(x):
    y = x + 1
    ref = weakref.ref(y)
    z = y * 3
    print("one")
    print("two")
    return ref() * 2 + z


def refer(value):
    return weakref.ref(value)


@program(graphs=2, breaks="unknown_call print")
def reference_made_in_a_call(x):
    y = x + 1
    ref = refer(y)
    print("one")
    return ref() * 2


@program(graphs=2, breaks="library_call library_call print library_call library_call")
def value_of_a_weak_dictionary(x):
    held = weakref.WeakValueDictionary()
    y = x + 1
    held["a"] = y
    print("one")
    return held["a"] * 2, len(held)


@program(
    graphs=1,
    breaks="unknown_call unknown_call opaque_object print opaque_object unknown_call",
    args=lambda: (nn.ReLU(), X),
)
def module_in_a_weak_set(net, x):
    held = weakref.WeakSet()
    held.add(net)
    print("one")
    return x + len(held)


@program(graphs=3, breaks="unknown_call print")
def tensor_rebound(x):
    y = x + 1
    ref = weakref.ref(y)
    y = x * 2
    print("one")
    return y + 1, ref() is None
