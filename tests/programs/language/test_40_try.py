"""try, except, else, finally.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

from tests.programs.program import program

TABLE = {"a": 1}


@program()
def not_raised(x):
    try:
        y = x + 1
    except ValueError:
        y = x - 1
    return y * 2


@program()
def caught_lookup(x):
    try:
        n = TABLE["missing"]
    except KeyError:
        n = 5
    return x * n


@program()
def caught_by_base_class(x):
    try:
        [][3]
    except LookupError as error:
        return x + 1, type(error).__name__


@program()
def first_clause_that_fits(x):
    for thing in ([], {}, 0):
        try:
            thing[1]
        except IndexError:
            x = x + 1
        except KeyError:
            x = x * 2
        except (TypeError, ValueError):
            x = x - 3
    return x


@program()
def else_runs_without_exception(x):
    log = []
    for key in ("a", "b"):
        try:
            TABLE[key]
        except KeyError:
            log.append("no " + key)
        else:
            log.append(key)
            x = x + 1
    return x, log


@program()
def finally_runs_always(x):
    log = []
    for n in (1, 0):
        try:
            1 // n
        except ZeroDivisionError:
            log.append("zero")
        finally:
            log.append(n)
            x = x * 2
    return x, log


@program()
def finally_without_except(x):
    log = []

    def inner():
        try:
            return TABLE["b"]
        finally:
            log.append("left")

    try:
        inner()
    except KeyError:
        x = x + len(log)
    return x, log


@program()
def return_in_try_and_finally(x):
    def inner(log):
        try:
            return x + 1
        finally:
            log.append("finally")

    log = []
    return inner(log), log


@program()
def return_in_finally_swallows(x):
    def inner():
        try:
            raise ValueError
        finally:
            return x * 3

    return inner()


@program()
def break_and_continue_in_try(x):
    log = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            x = x + i
        finally:
            log.append(i)
    return x, log


@program()
def nested_handlers(x):
    log = []
    try:
        try:
            TABLE["b"]
        except KeyError:
            log.append("inner")
            [].pop()
    except IndexError:
        log.append("outer")
    return x + 1, log


@program()
def handler_in_the_caller(x):
    def leaf(d):
        return d["nothing"]

    def middle(d):
        return leaf(d) + 1

    try:
        middle({})
    except KeyError as error:
        return x + 1, error.args


@program(graphs=0, breaks="unbound")
def name_of_the_exception_ends_with_the_handler(x):
    error = 1
    try:
        TABLE["b"]
    except KeyError as error:
        pass
    try:
        return x + error
    except NameError:
        return x - 1


@program()
def exception_in_a_loop_condition(x):
    it = iter([1, 2])
    while True:
        try:
            x = x + next(it)
        except StopIteration:
            break
    return x


@program()
def try_in_a_comprehension_helper(x):
    def number(s):
        try:
            return int(s)
        except ValueError:
            return -1

    return x * sum([number(s) for s in ("1", "x", "3")])


@program()
def wrong_calls_are_caught(x):
    def f(a, *, b=1):
        return a + b

    found = []
    for call in (lambda: f(), lambda: f(1, 2), lambda: f(1, c=2), lambda: f(1, a=2)):
        try:
            call()
        except TypeError:
            found.append("type")
    return x + 1, found


@program(breaks="exception")
def words_of_a_wrong_call(x):
    def f(a):
        return a

    y = x + 1
    try:
        f()
    except TypeError as error:
        return y, str(error)
