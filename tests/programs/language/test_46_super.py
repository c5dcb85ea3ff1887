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


def ends_in_python(x):
    print("ends")
    return x


class ByAnotherName(Base):
    def step(self, x):
        find = super
        y = x + 1
        print("find")
        found = find()
        return ends_in_python(found.step(y))

    def kept(self, x):
        print("kept")
        find = super
        get = lambda: self  # noqa: E731
        print("cell")
        return find().step(x), get() is self

    def another(self, x, find):
        print(__class__.__name__)
        return find(), x + 1


@program(args=lambda: (ByAnotherName(), X), graphs=2, breaks="print print")
def under_another_name(this, x):
    return this.step(x)


@program(args=lambda: (ByAnotherName(), X, dict), graphs=1, breaks="print")
def another_function(this, x, find):
    return this.another(x, find)


kept = program(args=lambda: (ByAnotherName(), X), graphs=0, breaks="print", plain=True)(
    ByAnotherName.kept
)
