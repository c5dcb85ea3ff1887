"""User-defined context managers, contextlib, logging and warnings.

PYTEST_DONT_REWRITE
"""

import contextlib
import logging
import warnings

import torch

from tests.programs.program import X, program

LOG = []
logger = logging.getLogger("tests.programs")


class Recorder:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow
        self.events = []

    def __enter__(self):
        self.events.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, traceback):
        self.events.append(("exit", kind.__name__ if kind else None, str(value)))
        return self.swallow


@contextlib.contextmanager
def recording(name, log):
    log.append("enter " + name)
    try:
        yield len(log)
    finally:
        log.append("exit " + name)


@contextlib.contextmanager
def scaled(holder, factor):
    old = holder["scale"]
    holder["scale"] = factor
    yield
    holder["scale"] = old


@program()
def class_context_manager(x):
    with Recorder("a") as r:
        y = x + 1
    return y, r.events


@program()
def exception_is_swallowed(x):
    with Recorder("a", swallow=True) as r:
        raise ValueError("gone")
    return x + 1, r.events


@program()
def exception_passes_through(x):
    r = Recorder("a")
    try:
        with r:
            raise ValueError("kept")
    except ValueError as error:
        return x + 1, str(error), r.events


@program()
def several_managers(x):
    with Recorder("a") as a, Recorder("b") as b:
        y = x * 2
    return y, a.events, b.events


@program()
def generator_context_manager(x):
    log = []
    with recording("a", log) as n, recording("b", log):
        y = x + n
    return y, log


@program()
def setting_changed_for_a_block(x):
    holder = {"scale": 1}
    with scaled(holder, 3):
        y = x * holder["scale"]
    return y * holder["scale"], holder


@program()
def context_decorator(x):
    log = []

    @recording("d", log)
    def inner(t):
        log.append("body")
        return t + 1

    return inner(x), log


@program()
def contextlib_helpers(x):
    with contextlib.nullcontext(3) as n:
        y = x + n
    with contextlib.suppress(KeyError):
        raise KeyError("k")
    with contextlib.suppress(ZeroDivisionError):
        y = y * 2
    return y


@program()
def closing(x):
    class_free = Recorder("c")
    class_free.close = lambda: class_free.events.append("closed")
    with contextlib.closing(class_free) as c:
        y = x + 1
    return y, c.events


@program()
def return_in_a_with_block(x):
    r = Recorder("a")

    def inner(t):
        with r:
            return t + 1

    return inner(x), r.events


@program()
def loop_control_in_a_with_block(x):
    log = []
    for i in range(4):
        with recording(str(i), log):
            if i == 1:
                continue
            if i == 2:
                break
            x = x + i
    return x, log


@program(graphs=2, breaks="print")
def break_in_a_class_context_manager(x):
    with Recorder("a") as r:
        y = x + 1
        print("inside")
        y = y * 2
    return y, r.events


@program(graphs=2, breaks="print")
def break_in_exit(x):
    class_free = Recorder("a")
    with class_free:
        y = x + 1
    print(class_free.events)
    return y * 2


@program(before=LOG.clear, state=lambda: list(LOG))
def context_manager_changes_a_global(x):
    with recording("g", LOG):
        return x + 1


@program(graphs=2, breaks="warning")
def warning_is_shown_in_its_place(x):
    y = x + 1
    warnings.warn("careful")
    return y * 2


@program(graphs=2, breaks="print warning print")
def print_and_warn_keep_their_order(x):
    y = x + 1
    print("one")
    warnings.warn("two", UserWarning)
    print("three")
    return y * 2


@program(graphs=2, breaks="logging")
def logged_at_a_level_that_shows(x):
    y = x + 1
    logger.warning("shape %s", tuple(y.shape))
    return y * 2


@program()
def logged_at_a_level_that_does_not_show(x):
    y = x + 1
    logger.debug("shape %s", tuple(y.shape))
    if logger.isEnabledFor(logging.DEBUG):
        y = y + 100
    return y * 2
