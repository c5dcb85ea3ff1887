"""What is changed of classes and members between calls is noticed."""

import enum

import torch

from frameloom import jit

X = torch.ones(2)


def seen(fn, change):
    found = []
    for f in (fn, jit(fn)):
        undo = None
        try:
            found.append([f(X), (undo := change()) and None, f(X)])
        finally:
            if undo is not None:
                undo()
    return [[repr(r) for r in each] for each in found]


def test_the_bases_of_an_exception():
    class First(Exception):
        pass

    class Second(Exception):
        pass

    class Raised(First):
        pass

    def fn(x):
        try:
            raise Raised(3)
        except First:
            return x + 1
        except Second:
            return x + 2

    def change():
        Raised.__bases__ = (Second,)
        return lambda: setattr(Raised, "__bases__", (First,))

    plain, ours = seen(fn, change)
    assert plain == ours and plain[0] != plain[2]


def test_an_attribute_of_a_member():
    class Kind(enum.Enum):
        A = 1

    def fn(x):
        return x * getattr(Kind.A, "scale", 3)

    def change():
        Kind.A.scale = 7
        return lambda: delattr(Kind.A, "scale")

    plain, ours = seen(fn, change)
    assert plain == ours and plain[0] != plain[2]


def test_the_name_of_a_class():
    class Named:
        pass

    def fn(x):
        return x + 1, str(Named), f"{Named}"

    def change():
        name, Named.__qualname__ = Named.__qualname__, "Other"
        return lambda: setattr(Named, "__qualname__", name)

    plain, ours = seen(fn, change)
    assert plain == ours and plain[0] != plain[2]


def test_what_a_class_gives_for_an_index():
    class Meta(type):
        pass

    class Indexed(metaclass=Meta):
        pass

    def fn(x):
        try:
            return x * len(Indexed[3])
        except TypeError as error:
            return str(error)

    def change():
        Meta.__class_getitem__ = lambda cls, key: "abcd"
        return lambda: delattr(Meta, "__class_getitem__")

    plain, ours = seen(fn, change)
    assert plain == ours and plain[0] != plain[2]
