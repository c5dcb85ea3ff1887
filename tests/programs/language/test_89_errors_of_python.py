"""Exceptions that Python's own functions raise, and texts of what the program makes.

PYTEST_DONT_REWRITE
"""

import copy
import functools
import itertools
import operator
from collections import OrderedDict, defaultdict

import torch

from tests.programs.program import program


def said(make):
    try:
        return repr(make())
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@program()
def makers_that_refuse(x):
    makers = (
        lambda: functools.partial(2),
        lambda: operator.attrgetter(3),
        lambda: operator.methodcaller(3),
        lambda: itertools.count(None),
        lambda: itertools.count(2, "a"),
        lambda: itertools.islice([1], "a"),
        lambda: itertools.islice([1], -1),
        lambda: itertools.islice([1], 0, 1, 0),
    )
    return x + 1, [said(make) for make in makers]


class Two:
    def __index__(self):
        return 2


@program()
def a_bound_that_is_an_index(x):
    return x + 1, list(itertools.islice([1, 2, 3], Two()))


@program()
def unpacking(x):
    found = []
    try:
        a, b = x.ndim
    except TypeError as error:
        found.append(str(error))
    try:
        a, *b = NotImplemented
    except TypeError as error:
        found.append(str(error))
    try:
        x.shape[0] = 1
    except TypeError as error:
        found.append(str(error))
    return x + 1, found


@program()
def texts_of_dictionaries(x):
    made = OrderedDict(a=1), defaultdict(list, b=[2]), [OrderedDict()], (defaultdict(int),)
    return x + 1, [str(d) for d in made], f"{made[0]!r:>9} {made[1]}", "%s" % (OrderedDict(c=3),)


class WithGetter(torch.nn.Module):
    @property
    def broken(self):
        return self.missing

    def forward(self, x):
        try:
            return x + self.broken
        except AttributeError as error:
            return x + 1, str(error)


MODULE = WithGetter()


@program()
def a_getter_that_lacks_something(x):
    return MODULE(x), hasattr(MODULE, "broken")


@functools.cache
def pair(n):
    return n, 2


@program()
def a_tuple_from_a_cache(x):
    return x + pair(0)[0], pair(0) is pair(0)


class CopyingMeta(type):
    def __copy__(cls, instance):
        return "copied by the class's class"


class Copied(metaclass=CopyingMeta):
    pass


COPIED = Copied()


@program(breaks="library_call")
def a_copy_by_the_metaclass(x):
    return x + 1, copy.copy(COPIED)


class Cached(type):
    __getattr__ = functools.lru_cache(lambda cls, name: len(name))
    __eq__ = functools.lru_cache(lambda cls, other: True)
    __hash__ = type.__hash__


def asked():
    class Asked(metaclass=Cached):
        pass

    return Asked


HELD = [asked()]  # pytest asks what lies in a module for anything


@program(breaks="attribute opaque_object")
def methods_that_are_no_functions(x):
    return x + HELD[0].abc, HELD[0] == 3
