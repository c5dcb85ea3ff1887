"""with: managers of the user's own and of contextlib.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import contextlib

from tests.programs.program import program


class Scope:
    def __init__(self, log, name="s", swallow=False):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(
            (self.name, None if kind is None else kind.__name__, str(value), trace is None)
        )
        return self.swallow


@contextlib.contextmanager
def scope(log, name):
    log.append("enter " + name)
    try:
        yield name
    except ValueError as error:
        log.append("caught " + str(error))
    finally:
        log.append("exit " + name)


@program()
def own_manager(x):
    log = []
    with Scope(log) as s:
        x = x + len(s.name)
    return x, log


@program()
def two_in_one_with(x):
    log = []
    with Scope(log, "a") as a, Scope(log, "b") as b:
        x = x * 2
    return x, log, a is b


@program()
def swallows_the_exception(x):
    log = []
    with Scope(log, swallow=True):
        raise ValueError("v")
    return x + 1, log


@program()
def lets_the_exception_pass(x):
    log = []
    try:
        with Scope(log):
            {}["k"]
    except KeyError:
        log.append("outside")
    return x + 1, log


@program()
def return_out_of_with(x):
    def inner(log):
        with Scope(log):
            return x * 3

    log = []
    return inner(log), log


@program()
def break_and_continue_out_of_with(x):
    log = []
    for i in range(3):
        with Scope(log, str(i)):
            if i == 0:
                continue
            if i == 1:
                break
        x = x + 100
    return x + 1, log


@program()
def generator_manager(x):
    log = []
    with scope(log, "g") as name:
        log.append(name)
        x = x + 1
    return x, log


@program()
def generator_manager_catches(x):
    log = []
    with scope(log, "g"):
        x = x + 1
        raise ValueError("inside")
    return x, log


@program()
def generator_manager_lets_pass(x):
    log = []
    try:
        with scope(log, "g"):
            raise KeyError("k")
    except KeyError:
        log.append("outside")
    return x + 1, log


@program()
def nested_generator_managers(x):
    log = []
    with scope(log, "a"), scope(log, "b"):
        x = x + 1
        raise ValueError("v")
    return x, log


@program()
def null_and_suppress(x):
    with contextlib.nullcontext(4) as n, contextlib.suppress(KeyError, IndexError):
        x = x + n
        [].pop()
    return x


class Door:
    def __init__(self):
        self.open = True

    def close(self):
        self.open = False


@program()
def closing_closes(x):
    with contextlib.closing(Door()) as door:
        x = x + door.open
    return x, door.open


@program()
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Scope(log, "a"))
        stack.callback(log.append, "callback")
        stack.enter_context(scope(log, "g"))
        x = x * 2
    return x, log


@program()
def exit_stack_in_a_loop(x):
    log = []
    with contextlib.ExitStack() as stack:
        for n in range(3):
            stack.enter_context(Scope(log, str(n)))
            x = x + n
    return x, log


@program()
def manager_as_decorator(x):
    log = []

    @scope(log, "d")
    def work(x):
        log.append("work")
        return x + 1

    return work(x), log


@program(graphs=2, breaks="print")
def break_inside_with(x):
    log = []
    with Scope(log):
        x = x + 1
        print("inside")
        x = x * 2
    return x, log


@program(graphs=2, breaks="print")
def break_inside_with_that_catches(x):
    log = []
    with Scope(log, swallow=True):
        x = x + 1
        print("inside")
        raise ValueError("v")
    return x * 2, log
