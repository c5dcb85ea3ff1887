"""What a traceback shows behind a break: the program's own frames once, with the variables that they hold, whether or not they are read again.

PYTEST_DONT_REWRITE
"""

import linecache
import traceback

import torch

from frameloom import jit
from tests.programs.program import X, program


class Shows:
    """Called with X, what `fn` raises comes back as the frames of its traceback: name, line, variables but those made for going on."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *args):
        try:
            self.fn(*args)
        except Exception as error:
            return shown(error)


def shown(error):
    frames = []
    tb = error.__traceback__
    while tb is not None:
        names = {
            name: value
            for name, value in tb.tb_frame.f_locals.items()
            if not name.startswith(".") and not isinstance(value, torch.Tensor)
        }
        frames.append((tb.tb_frame.f_code.co_name, tb.tb_lineno, names))
        tb = tb.tb_next
    return type(error), [
        frame for frame in frames if frame[0] in ("outer", "inner", "spelled", "late", "ask")
    ] + ["own code" for frame in frames if "drive" in frame[0]]


def outer(x):
    count = len(x)
    return inner(x + 1, count)


def inner(x, count):
    text = "a"
    y = x * count
    print("before")
    return y.no_such(text)


def unbacked(x, given):
    kept = given
    kept = kept + 1
    y = x + kept
    print("first")
    y = y * 2
    print("second")
    raise KeyError(given)


def spelled(x):
    blech = None
    y = x + 1
    bluch  # noqa: B018, F821
    return y


class Holder:
    def __init__(self):
        self.blech = 1

    def ask(self, x):
        y = x + 1
        return y, blech  # noqa: F821


def loop(x, many):
    for step in range(many):
        y = x + step
        print(step)
        unbacked_name = step
    print(unbacked_name, y.sum().item())
    return y


def passes_on(x):
    """An exception of a called function that is caught shows each frame once."""
    y = x + 1
    print("before")
    try:
        unbacked(y, 2)
    except KeyError as error:
        return y, shown(error)


def _same(fn, *args):
    plain, jitted = Shows(fn), Shows(jit(fn))
    want = plain(*args)
    assert want is not None
    for _ in range(2):
        got = jitted(*args)
        assert got == want, f"{got}\n{want}"


def test_traceback_of_inlined_calls():
    _same(outer, X)


def test_variables_not_read_again_are_passed_on():
    _same(unbacked, X, 3)


def test_variables_where_a_name_is_misspelt():
    _same(spelled, X)
    holder = Holder()
    _same(lambda x: holder.ask(x), X)


def test_exception_that_is_caught():
    assert jit(passes_on)(X)[1] == passes_on(X)[1]


def test_suggestion():
    try:
        jit(spelled)(X)
    except NameError as error:
        text = "".join(traceback.format_exception(error))
    assert "Did you mean: 'blech'" in text or not hasattr(traceback, "_compute_suggestion_error")


@program(graphs=4, breaks="print print print print")
def loop_with_a_variable_bound_late(x):
    return loop(x, 3)


def test_a_break_leaves_the_cache_of_lines_alone():
    linecache.clearcache()
    jit(loop)(X, 2)
    assert __file__ not in linecache.cache


class Watched:
    """Says who asks for its attributes."""

    asked: list = []

    def __getattribute__(self, name):
        Watched.asked.append(name)
        return object.__getattribute__(self, name)


def test_capture_asks_the_objects_it_passes_on_for_nothing():
    def fn(x, given):
        kept = given
        y = x + 1
        print("between")
        return y, len([kept])

    Watched.asked.clear()
    jit(fn)(X, Watched())
    assert Watched.asked == []


def test_a_frame_behind_a_break_is_not_asked_whether_it_has_tensors():
    def fn(x, given):
        y = x + 1
        print("between")
        return y, given.real

    Watched.asked.clear()
    Watched.real = 1
    jit(fn)(X, Watched())
    assert Watched.asked == ["real"]
