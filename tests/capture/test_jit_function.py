"""The jitted callable: binding, order of entries, results by recipe, and looking like the function it wraps."""

import copy
import gc
import inspect
import pickle
import weakref
from types import FunctionType

import pytest

from frameloom.capture import _capture as c


def echo(*slots):
    return slots


def entry_for(function, kinds=(), recipe=None, plan=echo):
    """A direct entry whose slots are all arguments; `kinds` maps positions to exact types."""
    code = function.__code__
    count = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & 4)
        + bool(code.co_flags & 8)
    )
    guards = c.Guards()
    for position in range(count):
        node = guards.load(None, "arg", position, code.co_varnames[position])
        if position in dict(kinds):
            guards.check(node, "type", dict(kinds)[position])
        guards.slot(node)
    return c.Entry.direct(guards, plan, recipe or ("tuple", [("slot", i) for i in range(count)]))


def jitted(function, **kwargs):
    result = c.JitFunction(function, lambda jit, slots: None)
    result.add(entry_for(function, **kwargs))
    return result


def positional(a, b):
    return a, b


def defaults(a, b=2, c=3):
    return a, b, c


def keyword_only(a, *, k, m=5):
    return a, k, m


def positional_only(a, b=2, /, c=3):
    return a, b, c


def everything(a, b=2, /, c=3, *rest, k=4, **more):
    return a, b, c, k, rest, more


@pytest.mark.parametrize(
    "function", [positional, defaults, keyword_only, positional_only, everything]
)
def test_arguments_are_bound_as_python_does(function):
    jit = jitted(function)
    calls = [
        ((1, 2), {}),
        ((1,), {}),
        ((), {}),
        ((1, 2, 3), {}),
        ((1, 2, 3, 4), {}),
        ((1,), {"b": 9}),
        ((), {"a": 1, "b": 2}),
        ((1,), {"a": 2}),
        ((1,), {"k": 7}),
        ((1, 2), {"c": 8, "k": 6, "z": 5}),
        ((1,), {"k": 1, "m": 2}),
        ((1,), {"b": 4, "c": 5, "k": 1}),
    ]
    for args, kwargs in calls:
        try:
            expected = function(*args, **kwargs)
        except TypeError as error:
            with pytest.raises(TypeError) as raised:
                jit(*args, **kwargs)
            assert str(raised.value) == str(error)
        else:
            assert jit(*args, **kwargs) == expected, (args, kwargs)


def test_many_arguments():
    names = [f"a{i}" for i in range(60)]
    namespace = {}
    exec(f"def f({', '.join(names)}): return ({', '.join(names)})", namespace)
    jit = jitted(namespace["f"])
    assert jit(*range(60)) == tuple(range(60))
    assert jit(**{name: i for i, name in enumerate(names)}) == tuple(range(60))


def test_recipes():
    outs = (10, 20)
    recipe = (
        "dict",
        ["x", 1],
        [("list", [("out", 1), ("const", None)]), ("tuple", [("slot", 0), ("tuple", [])])],
    )
    jit = jitted(positional, recipe=recipe, plan=lambda *slots: outs)
    thing = object()
    assert jit(thing, 0) == {"x": [20, None], 1: (thing, ())}
    assert jitted(positional, recipe=("out", 1), plan=lambda *slots: [1, 2])(0, 0) == 2
    with pytest.raises(IndexError):
        jitted(positional, recipe=("out", 5), plan=lambda *slots: (1,))(0, 0)


@pytest.mark.parametrize(
    "recipe",
    [("slot", 2), ("out", -1), ("set", []), "out", ("dict", ["a"], []), None, ("tuple", [3])],
)
def test_wrong_recipes_are_refused(recipe):
    guards = c.Guards()
    with pytest.raises((ValueError, IndexError)):
        c.Entry.direct(guards, echo, recipe)


def test_newest_entry_first_then_on_miss():
    missed = []

    def on_miss(jit, slots):
        missed.append((jit, slots))
        entry = entry_for(positional, kinds={0: type(slots[0])}, recipe=("const", type(slots[0])))
        jit.add(entry)
        return entry

    jit = c.JitFunction(positional, on_miss)
    assert jit(1, 2) is int and jit("a", b=2) is str and jit(3, 4) is int
    assert missed == [(jit, (1, 2)), (jit, ("a", 2))]
    assert [entry.calls for entry in jit.entries] == [2, 1]
    jit.add(entry_for(positional, recipe=("const", "newest")))
    assert jit(1, 2) == "newest"
    jit.clear()
    assert jit.entries == [] and jit(1, 2) is int


def test_on_miss_may_leave_it_to_python_or_raise():
    assert c.JitFunction(positional, lambda *a: None)(1, 2) == (1, 2)

    def fails(*a):
        raise LookupError("compiler")

    with pytest.raises(LookupError, match="compiler"):
        c.JitFunction(positional, fails)(1, 2)
    with pytest.raises(TypeError, match="on_miss gives"):
        c.JitFunction(positional, lambda *a: 3)(1, 2)


def test_entry_that_refuses_its_own_call_warns_and_runs_plainly():
    jit = c.JitFunction(positional, lambda *a: entry_for(positional, kinds={0: str}))
    with pytest.warns(RuntimeWarning, match="a: expected type str, found type int"):
        assert jit(1, 2) == (1, 2)


def test_code_and_plain_entries():
    def f(a, b=2, *, k=3):
        return "original", a, b, k

    def g(a, b=2, *, k=3):
        return "rewritten", a, b, k

    rewritten = FunctionType(g.__code__, f.__globals__, "f", f.__defaults__)
    rewritten.__kwdefaults__ = f.__kwdefaults__
    jit = c.JitFunction(f, None)
    code = c.Entry.code(c.Guards(), rewritten)
    jit.add(code)
    assert jit(1, k=5) == ("rewritten", 1, 2, 5)
    plain = c.Entry.plain(c.Guards(), "because")
    jit.add(plain)
    assert jit(1) == ("original", 1, 2, 3)
    assert (code.kind, plain.kind, plain.target, code.calls) == ("code", "plain", "because", 1)


def test_changed_or_disabled_function_runs_as_it_is():
    def f(a):
        return a

    jit = jitted(f, recipe=("const", "compiled"))
    assert jit(1) == "compiled"
    jit.enabled = False
    assert jit(1) == 1
    jit.enabled = True
    previous = c.calls_suspend(True)
    assert jit(1) == 1
    c.calls_suspend(previous)
    assert jit(1) == "compiled"
    f.__code__ = (lambda a: a + 1).__code__
    assert jit(1) == 2


def test_entries_may_change_during_a_call():
    def f(a):
        return a

    jit = c.JitFunction(f, lambda *a: None)

    def plan(a):
        jit.clear()
        gc.collect()
        return (a,)

    jit.add(entry_for(f, recipe=("out", 0), plan=plan))
    assert jit([1]) == [1]
    assert jit.entries == []


def test_recursion_through_the_jitted_function():
    def f(n):
        return n

    def plan(n):
        return (jit(n - 1) + 1 if n else 0,)

    jit = c.JitFunction(f, None)
    jit.add(entry_for(f, recipe=("out", 0), plan=plan))
    assert jit(50) == 50


# --- looking like a function


def documented(a, b: int = 2) -> int:
    """A docstring."""
    return a + b


documented.tag = "mine"
pickled = c.JitFunction(positional, None)
pickled.__qualname__ = "pickled"


def test_looks_like_the_function():
    jit = c.JitFunction(documented, None)
    assert (jit.__name__, jit.__qualname__, jit.__module__) == (
        "documented",
        "documented",
        __name__,
    )
    assert jit.__doc__ == "A docstring." and jit.tag == "mine" and jit.__wrapped__ is documented
    assert (jit.__defaults__ == (2,) and jit.__annotations__ == {"a": int}) or jit.__annotations__[
        "b"
    ] is int
    assert inspect.signature(jit) == inspect.signature(documented)
    jit.note = 1
    assert jit.note == 1 and not hasattr(documented, "note")
    with pytest.raises(AttributeError):
        _ = jit.missing
    assert "documented" in repr(jit) and callable(jit)


def test_copy_and_pickle():
    jit = c.JitFunction(documented, None)
    assert copy.copy(jit) is jit and copy.deepcopy([jit])[0] is jit
    assert pickle.loads(pickle.dumps(pickled)) is pickled


def test_binds_as_a_method():
    class A:
        @jitted
        def method(self, x):
            return self, x

    a = A()
    assert a.method(1) == (a, 1) and A.method(a, 2) == (a, 2)
    bound = a.method
    assert bound(x=3) == (a, 3) and bound.__self__ is a and inspect.ismethod(bound)


# --- life


def test_everything_is_freed():
    class Big:
        pass

    def build():
        big = Big()

        def f(a):
            return a, big

        jit = c.JitFunction(f, lambda jit, slots, keep=big: None)
        guards = c.Guards()
        guards.slot(guards.load(None, "object", big, "big"))
        jit.add(c.Entry.direct(guards, lambda x: (jit, x), ("const", (big, jit))))
        jit.add(c.Entry.code(c.Guards(), f))
        big.jit = jit
        jit.self = jit
        jit(1)
        return weakref.ref(jit), weakref.ref(big)

    refs = build()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_calls_do_not_leak():
    import sys

    jit = jitted(everything)
    thing = object()
    before = sys.getrefcount(thing)
    for _ in range(200):
        jit(thing, thing, thing, thing, k=thing, z=thing)
        with pytest.raises(TypeError):
            jit(k=thing)
    assert sys.getrefcount(thing) == before
