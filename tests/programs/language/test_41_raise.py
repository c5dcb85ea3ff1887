"""raise: user exceptions, causes, notes, exceptions that leave.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import abc
import traceback

import torch

from tests.programs.program import X, program


class Error(Exception):
    """With state of its own."""

    def __init__(self, code, *, why="none"):
        super().__init__(f"{code}: {why}")
        self.code = code
        self.why = why


class Shown(Exception):
    def __str__(self):
        return "shown " + repr(self.args)


class Plain(ValueError):
    pass


@program()
def user_exception(x):
    try:
        raise Error(3, why="three")
    except Error as error:
        return x + error.code, str(error), error.why, error.args


@program()
def class_alone(x):
    try:
        raise Plain
    except ValueError as error:
        return x + 1, str(error), isinstance(error, Plain)


@program()
def own_text(x):
    try:
        raise Shown(1, "b")
    except Shown as error:
        return x + 1, str(error), f"{error}", repr(error)


@program()
def text_of_builtin_ones(x):
    found = []
    for error in (ValueError("v"), ValueError(), ValueError(1, 2), KeyError("k")):
        try:
            raise error
        except (ValueError, KeyError) as seen:
            found.append((str(seen), repr(seen)))
    return x * 2, found


@program()
def from_another(x):
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise Error(1) from error
    except Error as error:
        return x + 1, repr(error.__cause__), error.code


@program()
def from_none(x):
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise Plain("outer") from None
    except Plain as error:
        return x + 1, error.__cause__, str(error)


@program()
def notes(x):
    error = Plain("p")
    error.add_note("one")
    try:
        raise error
    except Plain as seen:
        seen.add_note("two")
        return x + 1, seen.__notes__


@program()
def bare_raise(x):
    log = []
    try:
        try:
            raise Error(2)
        except Error:
            log.append("seen")
            raise
    except Exception as error:
        log.append(error.code)
    return x + 1, log


@program()
def bare_raise_from_a_function(x):
    def again():
        raise

    try:
        try:
            raise Plain("p")
        except Plain:
            again()
    except Plain as error:
        return x + 1, str(error)


@program()
def made_and_not_raised(x):
    error = Error(7, why="kept")
    error.extra = x + 1
    return x * error.code, error.extra


@program()
def through_inlined_callees(x):
    def leaf(n):
        if n > 2:
            raise Error(n)
        return n

    def middle(n):
        try:
            return leaf(n)
        finally:
            log.append(n)

    log = []
    try:
        for n in range(9):
            x = x + middle(n)
    except Error as error:
        log.append(error.code)
    return x, log


@program(breaks="exception")
def leaves(x):
    y = x + 1
    if y.shape[0] == 3:
        raise Error(y.shape[1], why="three rows")
    return y


@program(breaks="exception")
def leaves_with_its_context(x):
    y = x + 1
    try:
        raise KeyError("first")
    except KeyError:
        raise Plain(f"second {y.ndim}")


@program(breaks="exception")
def kept_after_it_was_raised(x):
    y = x + 1
    try:
        raise Plain("kept")
    except Plain as error:
        kept = error
    return y, kept, kept.__traceback__ is None


@program(breaks="attribute")
def context_is_asked(x):
    y = x * 2
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise Plain("second")
    except Plain as error:
        return y, repr(error.__context__)


@program(breaks="library_call")
def traceback_shows_user_lines(x):
    y = x + 1

    def fails():
        raise Plain("here")

    try:
        fails()
    except Plain:
        text = traceback.format_exc()
    return y, "raise Plain" in text, "fails()" in text


@program(args=(X, torch.tensor(2)))
def raised_by_data(x, n):
    y = x + 1
    if n > 1:
        raise Plain("too much")
    return y


@program()
def exceptions_compare_by_identity(x):
    error = Plain(1)
    try:
        raise error
    except Plain as seen:
        same = seen is error
    return x + 1, same


class SaysYes(type):
    def __subclasscheck__(cls, other):
        return True


class Anything(Exception, metaclass=SaysYes):
    pass


class Registered(Exception, metaclass=abc.ABCMeta):
    pass


Registered.register(KeyError)


@program()
def handlers_do_not_ask_a_metaclass(x):
    try:
        raise KeyError("k")
    except Anything:
        return x + 1
    except Registered:
        return x + 2
    except LookupError:
        return x + 3


class OddKey:
    def __hash__(self):
        return hash("word")

    def __eq__(self, other):
        raise ZeroDivisionError


Odd = type("Odd", (), {OddKey(): 5})


@program(breaks="attribute")
def look_up_beside_a_key_that_raises(x):
    y = x + 1
    try:
        z = Odd.word
    except ZeroDivisionError:
        z = 3
    return y * z
