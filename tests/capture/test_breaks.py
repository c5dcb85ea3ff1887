"""Breaks: same answers, same printed text, capture going on behind them."""

import logging

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit
from tests.capture.capturing import captured, jitted

X = torch.arange(12.0).reshape(3, 4)


def test_print_in_the_middle():
    def f(x):
        y = x + 1
        print("hello", y.shape)
        return y * 2

    captured(f, X, graphs=2, kinds=["print"], no_plain=True)


def test_message():
    def f(x):
        y = x + 1
        print("hello")
        return y * 2

    text = captured(f, X).breaks[0].text.splitlines()
    assert len(text) <= 6
    assert "test_breaks.py" in text[1] and 'print("hello")' in text[2]
    assert text[3].strip() == "^" * len('print("hello")')


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branch_on_data(sign):
    def f(x):
        y = x * 2
        if y.sum() > 0:
            z = y + 1
        else:
            z = y - 1
        return z * 3

    captured(f, X * sign, graphs=2, kinds=["data_dependent_branch"])


def test_item():
    def f(x):
        n = len(str((x + 1).sum().item()))
        return x * n

    captured(f, X, graphs=2, breaks=1)


def test_break_in_a_loop():
    def f(x):
        for i in range(4):
            x = x + 1
            print(i)
            x = x * 2
        return x - 1

    runner = captured(f, X)
    assert set(b.kind for b in runner.breaks) <= {"print", "opaque_iterable"}


def test_many_iterations():
    def f(x, n):
        while n > 0:
            if x.sum() > 1e9:
                break
            n -= 1
            x = x + 1
        return x

    target, runner = jitted(f)
    assert torch.equal(target(X, 5), f(X, 5))

    def g(x, items):
        for _ in items:
            x = x + 1
            print("", end="")
        return x

    target, runner = jitted(g)
    items = [None] * 2000
    assert torch.equal(target(X, items), g(X, items))
    assert len(runner.graphs) < 6


def inner(x):
    y = x + 1
    print("inside")
    return y * 2


def middle(x, k):
    a = inner(x * k)
    return a - k, x


def test_break_in_a_callee():
    def f(x):
        return inner(x) + 1

    captured(f, X, graphs=2, kinds=["print"], no_plain=True)


def test_break_two_calls_deep():
    def f(x):
        base = x * 3
        a, b = middle(x, 2)
        return a + b + base

    captured(f, X, graphs=2, kinds=["print"], no_plain=True)


def test_two_breaks_in_a_callee():
    def g(x):
        x = x + 1
        print("one")
        x = x * 2
        print("two")
        return x - 1

    def f(x):
        return g(x) + g(x * 3)

    captured(f, X, kinds=["print"] * 4)


def test_break_in_a_callee_in_a_loop():
    def f(x):
        for k in (1, 2, 3):
            x = inner(x) * k
        return x

    captured(f, X)


def test_branch_in_a_callee():
    def g(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    def f(x):
        return g(x) * 2 + g(-x)

    captured(f, X, graphs=3, breaks=2)


def test_exception_is_handled_by_the_program():
    def f(x, key):
        y = x + 1
        try:
            z = y[[1, 2, 7]] * 2
        except IndexError as error:
            print(type(error).__name__)
            z = y * 3
        return z + 1

    captured(f, X, 1)


def test_exception_in_an_inlined_call():
    def g(x):
        return x.reshape(7)

    def f(x):
        y = x + 1
        try:
            return g(y)
        except RuntimeError:
            print("caught")
            return y * 2

    captured(f, X)


def test_exception_leaves():
    def g(x):
        if x.shape[0] == 3:
            raise ValueError(f"three rows: {x.shape}")
        return x

    def f(x):
        return g(x + 1) * 2

    captured(f, X, kinds=["exception"])


def test_finally_runs():
    def f(x, log):
        y = x + 1
        try:
            print("body")
            y = y * 2
        finally:
            log.append("done")
            print("finally")
        return y

    captured(f, X, [])


def test_with_blocks_stay_entered():
    class Scope:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("in")

        def __exit__(self, *exc):
            self.log.append("out")

    def f(x, log):
        with Scope(log):
            y = x + 1
            print("middle")
            y = y * 2
        log.append("after")
        return y

    captured(f, X, [])


def test_no_grad_stays_entered():
    def f(x):
        with torch.enable_grad():
            y = x + 1
            print(torch.is_grad_enabled())
            y = y * 2
        print(torch.is_grad_enabled())
        return y

    captured(f, X)


def test_keyword_calls_break_at_the_call():
    def f(x):
        y = x + 1
        print("a", "b", sep="-", end="!")
        return y * 2

    captured(f, X, graphs=2, kinds=["print"])


def test_star_calls_break_at_the_call():
    def f(x, args, kwargs):
        y = x + 1
        print(*args, **kwargs)
        return y * 2

    captured(f, X, ["a", "b"], {"sep": "-"}, graphs=2)


def test_unknown_c_function():
    import time

    def f(x):
        y = x + 1
        time.sleep(0)
        return y * 2

    captured(f, X, graphs=2, kinds=["unknown_call"])


def test_functions_called_for_each_element():
    def f(x):
        y = x.int()
        y.apply_(lambda n: n + 2)
        return x.map_(y.float(), lambda a, b: a - b)

    captured(f, X, kinds=["item", "item"])


def test_warnings_of_pytorchs_functions_come_in_each_call():
    def f(x):
        return F.mse_loss(x, x[0])

    g = jit(f, dynamic=True)
    for rows in (2, 3, 3):
        with pytest.warns(UserWarning) as wanted:
            f(torch.ones(rows, 4))
        with pytest.warns(UserWarning) as given:
            g(torch.ones(rows, 4))
        assert [(str(w.message), w.lineno) for w in given] == [(str(w.message), w.lineno) for w in wanted]  # fmt: skip


def test_methods_break_at_the_load():
    class Lazy:
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            print("asked for", name)
            return lambda y: y * 2

    def f(x, thing):
        y = x + 1
        return thing.twice(y) + y

    captured(f, X, Lazy())


def test_changes_before_a_break_are_visible():
    class Box:
        pass

    box = Box()
    box.n = 0

    def show():
        print(box.n, len(box.items))

    def f(x, box):
        box.n = box.n + 1
        box.items = [x]
        print(box.n, len(box.items))
        box.n += 1
        return x + box.n

    captured(f, X, box)


def test_mutation_before_a_break():
    def f(x):
        x.add_(1)
        print(float(x.sum()))
        x.mul_(2)
        return x

    captured(f, X)


def test_raise_in_a_resumed_piece():
    def f(x):
        y = x + 1
        try:
            print("middle")
            raise KeyError("k")
        except KeyError:
            y = y * 2
        return y

    captured(f, X)


def test_traceback_shows_the_line():
    import traceback

    def f(x):
        y = x + 1
        print("middle")
        y = y * 2
        raise RuntimeError("here")

    target, _ = jitted(f)
    for _ in range(2):
        try:
            target(X)
        except RuntimeError as error:
            frames = traceback.extract_tb(error.__traceback__)
            assert frames[-1].name == "f" and "raise RuntimeError" in frames[-1].line


def test_deleting_the_function_frees_everything():
    import gc
    import types
    import weakref

    scope = {"torch": torch}
    exec(
        "def g(x):\n    print('g')\n    return x + 1\ndef f(x):\n    y = g(x * 2)\n    print('f')\n    return y",
        scope,
    )
    target, runner = jitted(scope["f"])
    scope["again"] = target
    target(X), target(X)
    alive = [
        weakref.ref(o)
        for o in (
            target,
            runner,
            scope["f"],
            *(made for _, made in runner.capture_session.resumes.values()),
        )
    ]
    assert len(alive) >= 5 and isinstance(scope["g"], types.FunctionType)
    del target, runner, scope
    gc.collect()
    assert not [r for r in alive if r() is not None]


def test_a_break_in_a_library_names_the_users_line():
    logger = logging.getLogger("tests.breaks")

    def f(x):
        logger.error("shown")
        return x + 1

    fn, runner = jitted(f)
    fn(torch.ones(2))
    where = runner.breaks[0].where
    assert where.file == __file__ and where.function.endswith("f")
    assert where.inside.startswith("logging") and "Logger.error" in where.inside
    assert "logger.error" in runner.breaks[0].text


def test_a_write_to_an_input_with_a_history_does_not_tell_of_a_failure():
    """Its Fake is a leaf, to which autograd refuses writes; the program's own tensor is none."""

    def f(x):
        x.mul_(2)
        return x + 1

    report = frameloom.explain(f)(torch.ones(2, requires_grad=True) * 3)
    assert report.result.tolist() == [7, 7]
    assert [b.kind for b in report.breaks] == ["autograd"]
