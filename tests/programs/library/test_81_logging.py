PYTEST_DONT_REWRITE = "the programs' own asserts are part of them"

import logging

from tests.programs.program import X, program

LOG = logging.getLogger("tests.quiet")
LOG.setLevel(logging.ERROR)
CHILD = logging.getLogger("tests.quiet.child")


def level(n):
    def before():
        LOG.setLevel(n)

    return before


@program()
def levels_that_are_off_cost_nothing(x):
    LOG.debug("x is %s", x)
    y = x + 1
    LOG.info("y is %s", y)
    CHILD.warning("two")
    LOG.log(5, "five")
    return y * 2


@program(graphs=2, breaks="logging")
def levels_that_are_on_write(x):
    y = x + 1
    LOG.error("sum %.1f", y.sum())
    return y * 2


@program()
def asked_for_levels(x):
    assert not CHILD.isEnabledFor(logging.INFO)
    assert CHILD.isEnabledFor(logging.CRITICAL)
    return x * CHILD.getEffectiveLevel()


@program(breaks="library_call")
def a_logger_by_its_name(x):
    logging.getLogger("tests.quiet.child").debug("nothing")
    return x + 1


SEEN = []


def switch():
    SEEN.append(1)
    LOG.setLevel(logging.DEBUG if len(SEEN) > 4 else logging.ERROR)


@program(before=switch, calls=[(X,), (X,), (X,)], graphs=3, breaks="logging")
def a_level_that_is_turned_on(x):
    y = x + 1
    CHILD.debug("now")
    return y * 2
