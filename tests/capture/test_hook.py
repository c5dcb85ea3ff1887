"""The frame hook: frames of functions called under it run their entries, and nothing else changes."""

import gc
import sys
import threading
import traceback
import weakref
from types import FunctionType

import pytest

from frameloom.capture import _capture as c


@pytest.fixture
def hook():
    """hook(callback) enters the hook with that callback until the test ends."""
    used = []

    def enter(callback):
        c.set_frame_callback(callback)
        c.hook_enter()
        used.append(1)

    yield enter
    for _ in used:
        c.hook_exit()
    c.set_frame_callback(None)


def replaced(function, body):
    """A function with the code of `body` and everything else of `function`."""
    return FunctionType(
        body.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def code_entry(function, body):
    return c.Entry.code(c.Guards(), replaced(function, body))


def test_callback_sees_function_and_bound_arguments(hook):
    seen = []

    def f(a, b=2, *rest, k=3, **more):
        return a

    hook(lambda function, slots: seen.append((function, slots)))
    f(1, 5, 6, k=7, z=8)
    f(1)  # left alone for good
    c.hook_suspend(True)
    try:
        assert seen == [(f, (1, 5, 7, (6,), {"z": 8}))]
    finally:
        c.hook_suspend(False)
        c.forget_code(f.__code__)


def test_code_entry_replaces_the_frame(hook):
    def f(a, b=10):
        return a + b

    def longer(a, b=10):
        x = y = z = a * b
        return [x, y, z, [x, y, [z, [x, [y, [z]]]]]]

    entry = code_entry(f, longer)
    hook(lambda function, slots: entry if function is f else None)
    results = f(2), f(3, b=4), [f(i) for i in range(3)]
    assert results[0] == longer(2) and results[1] == longer(3, 4)
    assert results[2] == [longer(i) for i in range(3)]
    assert entry.calls >= 5 and c.code_entries(f.__code__) == [entry]
    c.forget_code(f.__code__)
    assert c.code_entries(f.__code__) == []


def test_cells_and_closures_are_those_of_the_frame(hook):
    def make(n):
        def f(a):
            return [lambda: a + n, n]

        return f

    def make_other(n):
        def g(a):
            return [lambda: (a, n), -n]

        return g

    f, g = make(1), make(2)
    entry = c.Entry.code(c.Guards(), replaced(f, make_other(0)))
    hook(lambda function, slots: entry if function.__name__ == "f" else None)
    first, second = f(5), g(6)
    assert (first[0](), first[1]) == ((5, 1), -1)
    assert (second[0](), second[1]) == ((6, 2), -2)


def test_direct_entry_gives_the_frames_result(hook):
    def f(a, b):
        raise AssertionError("not run")

    g = c.Guards()
    node = g.load(None, "arg", 0, "a")
    g.check(node, "type", int)
    g.slot(node)
    g.slot(g.load(None, "arg", 1, "b"))
    entry = c.Entry.direct(g, lambda *slots: (slots,), ("out", 0))
    hook(lambda function, slots: entry if function is f else None)
    thing = object()
    count = sys.getrefcount(thing)
    for _ in range(100):
        assert f(1, thing) == (1, thing)
    assert sys.getrefcount(thing) == count
    with pytest.raises(AssertionError):
        f("x", thing)


def test_direct_entry_raises(hook):
    def f(a):
        return a

    g = c.Guards()

    def plan():
        raise KeyError("planned")

    hook(lambda function, slots: c.Entry.direct(g, plan, ("out", 0)) if function is f else None)
    for _ in range(3):
        with pytest.raises(KeyError, match="planned"):
            f(1)


def test_traceback_shows_one_frame_of_the_new_code(hook):
    def f(a):
        return a

    def failing(a):
        x = [a]
        raise ValueError(len(x))

    hook(lambda function, slots: code_entry(f, failing) if function is f else None)
    try:
        f(3)
    except ValueError as error:
        frames = traceback.extract_tb(error.__traceback__)
        assert [frame.name for frame in frames][1:] == ["failing"]
        assert error.__traceback__.tb_next.tb_frame.f_locals["a"] == 3
    else:
        raise AssertionError


def test_generators_module_code_and_comprehensions_pass(hook):
    def gen(n):
        yield from range(n)

    async def coroutine():
        return 1

    seen = []
    hook(lambda function, slots: seen.append(function.__name__))
    assert list(gen(3)) == [0, 1, 2]
    with pytest.raises(StopIteration):
        coroutine().send(None)
    exec("value = 1", {})
    assert not {"gen", "coroutine"} & set(seen)


def test_callback_errors_are_reported_once_and_change_nothing(hook, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: reported.append(info.exc_type))

    def f(a):
        return a + 1

    def g(a):
        return a + 2

    hook(lambda function, slots: 1 / 0)
    results = f(1), f(2), g(1)
    c.hook_suspend(True)
    c.hook_suspend(False)
    assert results == (2, 3, 3)
    assert reported == [ZeroDivisionError]


def test_suspended_threads_and_frames_pass(hook):
    seen = []

    def f():
        return 1

    def g():
        return 2

    hook(lambda function, slots: seen.append(function))
    previous = c.hook_suspend(True)
    f()
    c.hook_suspend(previous)
    other = threading.Thread(target=f)
    c.hook_suspend(True)
    other.start()
    other.join()
    c.hook_suspend(False)
    g()
    assert not previous and f not in seen and g in seen


def test_recursion_reaches_the_usual_depth(hook):
    def depth(n):
        try:
            return depth(n + 1)
        except RecursionError:
            return n

    def f(n):
        return n if n == 0 else f(n - 1)

    plain = depth(0)
    c.set_frame_callback(None)
    hook(lambda function, slots: None)
    assert depth(0) >= plain - 20
    with pytest.raises(RecursionError):
        f(10**6)


def test_deep_recursion_needs_no_c_stack(hook):
    def f(n):
        return 0 if n == 0 else 1 + f(n - 1)

    hook(lambda function, slots: None)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(60000)
    try:
        assert f(50000) == 50000
    finally:
        sys.setrecursionlimit(limit)
    seen = []
    c.set_frame_callback(lambda function, slots: seen.append(function))
    (lambda: 0)()
    assert seen  # and the hook is back


def test_entries_of_frames_do_not_keep_the_cells_of_one_call(hook):
    class Held:
        pass

    def outer():
        held = Held()

        def inner():
            return held

        inner()
        return weakref.ref(held)

    hook(
        lambda function, slots: (
            code_entry(function, function) if function.__name__ == "inner" else None
        )
    )
    ref = outer()
    gc.collect()
    assert ref() is None


def test_tracing_does_not_see_the_callback(hook):
    def f(a):
        return a

    events = []

    def trace(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return trace

    def callback(function, slots):
        return None

    hook(callback)
    sys.settrace(trace)
    try:
        f(1)
    finally:
        sys.settrace(None)
    assert [e for e in events if e[0] == "f"] == [("f", "call"), ("f", "line"), ("f", "return")]
    assert "callback" not in {name for name, _ in events}


def test_rewritten_code_runs_with_the_hook_entered():
    def inner(x):
        return x + 1

    def f(x):
        return inner(x)

    def better(x):
        return x + 100

    entry = c.Entry.code(c.Guards(), replaced(f, f))
    jitted = c.JitFunction(f, None)
    jitted.add(entry)
    c.set_frame_callback(
        lambda function, slots: code_entry(inner, better) if function is inner else None
    )
    try:
        assert jitted(1) == 101
        assert inner(1) == 2  # outside of a jitted call the hook is gone
    finally:
        c.set_frame_callback(None)


def test_code_takes_its_entries_along():
    namespace = {}
    exec("def f(x): return x", namespace)
    f = namespace["f"]
    entry = c.Entry.plain(c.Guards(), "a reason")
    c.set_frame_callback(lambda function, slots: entry if slots == (1,) else None)
    c.hook_enter()
    f(1)
    c.hook_exit()
    c.set_frame_callback(None)
    assert c.code_entries(f.__code__) == [entry]
    code = weakref.ref(f.__code__)
    dead = weakref.ref(f)
    del f, namespace
    c.set_frame_callback(None)
    gc.collect()
    assert dead() is None and code() is None
    assert sys.getrefcount(entry) == 2
