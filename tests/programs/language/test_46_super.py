"""super() in frames that go on behind a break, and what it finds.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

from tests.programs.program import X, program


class Base:
    def __init__(self):
        self.log = []

    def step(self, x):
        return x + 1

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


class Loud(Base):
    def step(self, x):
        print("before")
        y = super().step(x)
        print("after")
        return super().step(y)

    def __setattr__(self, name, value):
        print("set", name)
        super().__setattr__(name, value)


class Keeper(dict):
    def __setitem__(self, key, value):
        print(key)
        super().__setitem__(key, value)


@program(args=lambda: (Loud(), X), graphs=2, breaks="print print")
def behind_breaks(loud, x):
    return loud.step(x)


@program(graphs=1, breaks="print")
def native_method_behind_a_break(x):
    k = Keeper()
    k["a"] = x + 1
    return k


@program(graphs=1, breaks="print")
def own_setattr_behind_a_break(x):
    loud = Loud.__new__(Loud)
    loud.n = x + 1
    return loud.n
