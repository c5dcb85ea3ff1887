"""A guard program of one value, for tests."""

from tests.capture.guards.program import Program


def f(x, y=None):
    return x


class Guard:
    """One guard on the argument x: `Guard(lambda g, x: ...)`; `guard(value)` gives the failure or None.

    The walk of a call, which leaves out what cannot have changed, must come to the same as the full one."""

    def __init__(self, build, function=f):
        self.guards = Program(function)
        self.function = function
        build(self.guards, self.guards.arg(0))

    def __call__(self, x, y=None):
        failure = self.guards.explain_failure((x, y), self.function)
        for _ in range(2):
            assert self.guards.passes((x, y), self.function) == (failure is None)
        return failure


def check(kind, value=None):
    return Guard(lambda g, x: g.check(x, kind, value))
