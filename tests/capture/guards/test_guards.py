"""Every load and check of the guard program: what passes, what fails, and how a failure reads."""

import collections
import gc
import math
import weakref

import pytest
import torch

from tests.capture.guards.one_guard import Guard, check, f
from tests.capture.guards.program import Program


@pytest.mark.parametrize(
    "good, same, others",
    [
        (1, 1, [2, True, 1.0, "1", None]),
        (10**30, 10**30, [10**30 + 1]),
        (True, True, [1, False]),
        (0.0, 0.0, [-0.0, 0, math.nan]),
        (math.nan, float("nan"), [-math.nan, 1.0]),
        ("a" * 50, "aa" * 25, ["b" * 50, b"a" * 50]),
        (b"x", bytes([120]), ["x", b"y"]),
        (1j, complex(0, 1), [1.0, -1j]),
        (
            (1, ("a", None)),
            (1, ("a", None)),
            [(1, ("a", 0)), (1,), [1, ("a", None)], (True, ("a", None))],
        ),
        (None, None, [0, False]),
    ],
)
def test_equal(good, same, others):
    guard = check("equal", good)
    assert guard(good) is None and guard(same) is None
    for other in others:
        assert guard(other) is not None, other


def test_equal_reads_well():
    assert check("equal", 3)(4) == "x: expected 3, found 4"
    assert check("length", 2)([1]) == "x: expected length 2, found length 1"
    assert check("type", int)("s") == "x: expected type int, found type str"
    assert check("keys", ("a",))({"b": 1}) == "x: expected keys ('a',), found ('b',)"


def test_equal_refuses_other_objects():
    with pytest.raises(TypeError, match="cannot be guarded"):
        check("equal", [1])


def test_type_and_identity():
    class A:
        pass

    class B(A):
        pass

    a = A()
    assert check("type", A)(a) is None
    assert check("type", A)(B()) is not None
    assert check("is", a)(a) is None
    assert check("is", a)(A()) is not None
    assert check("is", None)(None) is None
    assert check("is", len)(len) is None


def test_a_dead_object_matches_nothing_and_is_not_kept():
    class A:
        pass

    a = A()
    guard = check("is", a)
    dead = weakref.ref(a)
    del a
    gc.collect()
    assert dead() is None
    assert all(guard(candidate) for candidate in [A() for _ in range(100)])
    assert guard(None) == "x: expected an object that is gone, found None"


def test_a_dead_class_matches_nothing():
    def make():
        return type("A", (), {})

    guard = check("type", make())
    gc.collect()
    assert guard(make()()) is not None and guard(None) is not None


@pytest.mark.parametrize("value", [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, frozenset({1, 2}), "ab"])
def test_length(value):
    assert check("length", 2)(value) is None
    assert check("length", 3)(value) is not None


def test_items_and_keys():
    guard = Guard(lambda g, x: g.check(g.child(x, "item", 1), "equal", 5))
    assert guard([0, 5]) is None and guard((0, 5)) is None
    assert guard([0, 6]) == "x[1]: expected 5, found 6"
    assert guard([0]) == "x[1]: expected to exist, not found"
    guard = Guard(lambda g, x: g.check(g.child(x, "key", "k"), "equal", 5))
    data = {"k": 5}
    assert guard(data) is None
    data["other"] = 1
    assert guard(data) is None
    data["k"] = 6
    assert guard(data) == "x['k']: expected 5, found 6"
    del data["k"]
    assert guard(data) is not None
    assert guard(3) is not None


def test_a_key_seen_in_one_dict_is_not_taken_from_another():
    guard = Guard(lambda g, x: g.check(g.child(x, "key", "k"), "equal", 5))
    first, second = {"k": 5}, {"k": 6}
    for _ in range(3):
        assert guard(first) is None
        assert guard(second) is not None
        assert guard(dict(first)) is None
    first.clear()
    assert guard(first) is not None


def test_keys_in_order():
    guard = check("keys", ("a", 1, None))
    assert guard({"a": 0, 1: 0, None: 0}) is None
    assert guard({1: 0, "a": 0, None: 0}) is not None
    assert guard({"a": 0, True: 0, None: 0}) is not None
    assert guard({"a": 0, 1: 0}) is not None
    ordered = collections.OrderedDict([("a", 0), ("b", 0)])
    guard = check("keys", ("b", "a"))
    assert guard(ordered) is not None
    ordered.move_to_end("a")
    assert guard(ordered) is None


def test_no_key():
    guard = check("no_key", "k")
    data = {}
    assert guard(data) is None and guard(data) is None
    data["k"] = 1
    assert guard(data) == "x: expected no key 'k', found 1"


def test_no_attribute_in_the_instance():
    class A:
        forward = 1

    def build(g, x):
        g.check(x, "type", A)
        g.check(g.child(x, "dict"), "no_key", "forward")

    a, guard = A(), Guard(build)
    assert guard(a) is None
    assert guard(A()) is None
    a.forward = 2
    assert guard(a) == "x: expected no attribute 'forward' of its own, found 2"
    del a.forward
    assert guard(a) is None


def test_class_attributes_as_they_are_stored():
    class Base:
        def method(self):
            return 1

    class A(Base):
        pass

    method = Base.method

    def build(g, x):
        cls = g.object(A)
        g.check(g.child(cls, "class_attr", "method"), "is", method)
        g.check(cls, "no_class_attr", "__getattr__")

    guard = Guard(build)
    assert guard(1) is None
    A.other = 1
    assert guard(1) is None
    A.method = lambda self: 2
    assert "A.method: expected function" in guard(1)
    del A.method
    assert guard(1) is None
    Base.method = A.other
    assert guard(1) is not None
    Base.method = method
    assert guard(1) is None
    Base.__getattr__ = method
    assert "A: expected no attribute __getattr__, found function" in guard(1)
    del Base.__getattr__
    assert guard(1) is None


def test_same():
    guard = Guard(lambda g, x: g.check(x, "same", g.arg(1)))
    thing = [1]
    assert guard(thing, thing) is None
    assert guard(thing, [1]) is not None


class Slotted:
    __slots__ = ("s",)


class Thing:
    shared = "class"
    counter = 0

    def method(self):
        return self

    @classmethod
    def make(cls):
        return cls

    @staticmethod
    def plain():
        return 1

    @property
    def computed(self):
        type(self).counter += 1
        return 1


def attribute(name, kind, value):
    return Guard(lambda g, x: g.check(g.child(x, "attr", name), kind, value))


def test_attributes():
    thing = Thing()
    thing.own = 7
    assert attribute("own", "equal", 7)(thing) is None
    assert attribute("shared", "equal", "class")(thing) is None
    assert attribute("shared", "equal", "class")(Thing) is None
    thing.shared = "mine"
    assert (
        attribute("shared", "equal", "class")(thing) == "x.shared: expected 'class', found 'mine'"
    )
    assert attribute("missing", "equal", 1)(thing) == "x.missing: expected to exist, not found"
    slotted = Slotted()
    assert attribute("s", "equal", 1)(slotted) is not None
    slotted.s = 1
    assert attribute("s", "equal", 1)(slotted) is None
    assert attribute("pi", "equal", math.pi)(math) is None
    assert attribute("plain", "is", Thing.plain)(thing) is None
    assert attribute("__name__", "equal", "Thing")(Thing) is None


def test_attributes_bind_methods_without_leaking():
    thing = Thing()

    def build(g, x):
        method = g.child(x, "attr", "method")
        g.check(g.child(method, "method_func"), "is", Thing.method)
        g.check(g.child(method, "method_self"), "same", x)
        made = g.child(x, "attr", "make")
        g.check(g.child(made, "method_self"), "is", Thing)

    guard = Guard(build)
    before = len(gc.get_referrers(thing))
    for _ in range(10):
        assert guard(thing) is None
    assert len(gc.get_referrers(thing)) == before
    assert guard(Slotted()) is not None


def test_properties_are_never_run():
    before = Thing.counter
    assert attribute("computed", "equal", 1)(Thing()) is not None
    assert Thing.counter == before


def test_instance_dict_and_class():
    def build(g, x):
        g.check(g.child(x, "type"), "is", Thing)
        g.check(g.child(g.child(x, "dict"), "key", "own"), "equal", 7)

    guard, thing = Guard(build), Thing()
    thing.own = 7
    assert guard(thing) is None
    thing.own = 8
    assert guard(thing) == "x.__dict__['own']: expected 7, found 8"
    assert guard(Slotted()) is not None


def test_function_parts():
    n = 3

    def function(a, b=2, *, k=4):
        return a + n

    def build(g, x):
        g.check(g.child(x, "func_code"), "is", function.__code__)
        g.check(g.child(x, "func_defaults"), "equal", (2,))
        g.check(g.child(g.child(x, "func_kwdefaults"), "key", "k"), "equal", 4)
        cell = g.child(g.child(x, "func_closure"), "item", 0)
        g.check(g.child(cell, "cell_contents"), "equal", 3)
        g.check(g.child(g.child(x, "func_globals"), "key", "gc"), "is", gc)

    guard = Guard(build)
    assert guard(function) is None
    n = 4
    assert guard(function) == "x.__closure__[0].cell_contents: expected 3, found 4"
    assert guard(f) is not None
    none = Guard(lambda g, x: g.check(g.child(x, "func_closure"), "is", None))
    assert none(f) is None and none(function) is not None


def test_cells_globals_and_objects():
    n = 3

    def function(x):
        return x + n

    guards = Program(function)
    guards.check(guards.cell(0), "equal", 3)
    module = guards.child(guards.globals(), "key", "math")
    guards.check(guards.child(module, "attr", "pi"), "equal", math.pi)
    guards.check(guards.child(guards.object(Thing), "attr", "shared"), "equal", "class")
    assert guards.explain_failure((1,), function) is None
    n = 4
    assert guards.explain_failure((1,), function) == "n: expected 3, found 4"
    assert guards.texts() == [
        "n: 3",
        "globals()['math'].pi: 3.141592653589793",
        "Thing.shared: 'class'",
    ]


def test_wrong_use_is_an_error():
    guards = Program(f)
    with pytest.raises(TypeError, match="cannot be guarded"):
        guards.load(None, "arg", -1, "x")
    with pytest.raises(IndexError):
        guards.check(3, "equal", 1)
    x = guards.arg(0)
    with pytest.raises(ValueError, match="no guard checks"):
        guards.check(x, "equals", 1)
    with pytest.raises(ValueError, match="no guard loads"):
        guards.child(x, "element", 1)
    with pytest.raises(TypeError):
        guards.check(x, "tensor", 1)
    assert guards.texts() == []


def state_guard():
    return Guard(lambda g, x: g.global_state())


def test_global_state():
    guard = state_guard()

    def with_default(set_value, value, back):
        set_value(value)
        try:
            return guard(0)
        finally:
            set_value(back)

    assert guard(0) is None
    for context in [
        torch.no_grad(),
        torch.inference_mode(),
        torch.device("cpu"),
        torch.autocast("cpu"),
        torch._C.DisableTorchFunction(),
    ]:
        with context:
            assert guard(0) is not None, context
        assert guard(0) is None
    assert (
        with_default(torch.set_default_dtype, torch.float64, torch.float32)
        == "the default dtype differs"
    )
    assert with_default(torch.set_default_device, "cpu", None) is not None
    assert with_default(torch.use_deterministic_algorithms, True, False) is not None
    assert guard(0) is None
    threads = torch.get_num_threads()
    assert with_default(torch.set_num_threads, threads + 1, threads) is None


def test_global_state_as_it_was():
    with torch.no_grad():
        inside = state_guard()
        assert inside(0) is None
    assert inside(0) == "grad mode (or inference mode) differs"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = state_guard()
        assert inside(0) is None
    with torch.autocast("cpu", dtype=torch.float16):
        assert inside(0) is not None
    device = torch.device("cpu")
    with device:
        inside = state_guard()
        assert inside(0) is None
    with torch.device("meta"):
        assert inside(0) is not None


def test_global_state_is_the_threads():
    import threading

    guard, seen = state_guard(), []
    with torch.no_grad():
        assert guard(0) is not None
        other = threading.Thread(target=lambda: seen.append(guard(0)))
        other.start()
        other.join()
    assert seen == [None]


def test_guards_do_not_leak():
    class Held:
        pass

    held = Held()
    guards = Program(f)
    node = guards.object(held)
    guards.check(guards.child(node, "attr", "guards"), "is", guards)
    held.guards = guards
    dead = weakref.ref(held)
    del held, guards
    gc.collect()
    assert dead() is None
