"""Special methods of built-in containers and tensors, called by name; fields of classes derived from namedtuples.

PYTEST_DONT_REWRITE
"""

import collections
import threading
import typing

import torch

from tests.programs.program import X, program


class Counted(list):
    def __len__(self):
        return 7

    def __getitem__(self, place):
        return "own"


@program()
def of_lists(x):
    values = [1, 2, 3]
    values.__setitem__(0, 5)
    values.__delitem__(1)
    same = values.__iadd__([7])
    return (
        values.__len__(),
        values.__getitem__(slice(1)),
        values.__contains__(7),
        values.__eq__([5, 3, 7]),
        values.__lt__([6]),
        values.__add__([x])[-1],
        values.__mul__(2),
        values.__rmul__(2),
        same is values,
        list(values.__reversed__()),
        next(values.__iter__()),
        x + 1,
    )


@program()
def of_tuples_sets_and_dictionaries(x):
    table = {"a": x, "b": 2}
    table.__setitem__("c", 3)
    table.__ior__({"d": 4})
    return (
        (1, x).__getitem__(0),
        (1, 2).__add__((3,)),
        (1, 2).__ge__((1,)),
        {1, 2}.__and__({2, 3}),
        {1}.__or__({2}),
        frozenset({1}).__sub__({1}),
        {1}.__contains__(1),
        table.__getitem__("a"),
        table.__len__(),
        table.__or__({"e": 5}).__len__(),
        list(table.__reversed__()),
        table.keys().__contains__("a"),
        table.keys().isdisjoint(["z"]),
        table.items().isdisjoint([("b", 2)]),
        x + 1,
    )


@program(args=lambda: (X, Counted([1, 2])))
def of_the_built_in_class_itself(x, values):
    return list.__len__(values), list.__getitem__(values, 0), len(values), values[0], x + 1


@program(breaks="unknown_call unknown_call", graphs=1)
def what_they_do_not_answer(x):
    return [1].__eq__((1,)), collections.OrderedDict(a=1).__eq__({"a": 1}), x + 1


@program()
def of_tensors(x):
    return next(x.__iter__()), list(x.__iter__()), x.__len__(), x.__neg__(), x.__getitem__(0)


ADDRESS = "const_data_ptr" if hasattr(torch.Tensor, "const_data_ptr") else "data_ptr"


@program(breaks="identity")
def hash_of_a_tensor(x):
    y = x * 2
    return y, isinstance(y.__hash__(), int)


@program(breaks="data_pointer")
def address_of_a_tensor(x):
    y = x * 2
    return y, getattr(y, ADDRESS)() != 0


Pair = collections.namedtuple("Pair", "first second")


class Total(Pair):
    def total(self):
        return self.first + self.second


class Slotted(Pair):
    __slots__ = ()

    def total(self):
        return self.first + self.second


class Scaled(typing.NamedTuple):
    value: torch.Tensor
    by: int = 2

    def result(self):
        return self.value * self.by


@program()
def fields_of_derived_classes(x):
    return (
        Total(x, x).total(),
        Slotted._make([x, 1]).second,
        Slotted(x, 1)._replace(second=2).total(),
        Total(x, 2)._asdict()["second"],
        Scaled(x).result(),
        Scaled(x, 3)._replace(by=4).result(),
        Total(x, 1)[0],
        Total(x, 1),
    )


@program(args=lambda: (Total(X, 1), Slotted(X, 2)))
def fields_of_given_ones(first, second):
    return first.total() + second.total(), first.first


@program()
def known_tensors_as_ints(x):
    n = torch.tensor(3)
    return [x * i for i in range(n)], [1, 2, 3, 4][n], range(1, n)[0], x.sum(torch.tensor(0))


LOCAL = threading.local()


def fill_local():
    LOCAL.scale = 3


@program(before=fill_local)
def attributes_of_a_thread_local(x):
    return x * LOCAL.scale, hasattr(LOCAL, "other"), getattr(LOCAL, "other", 5)


def test_each_thread_has_its_own_attributes():
    from frameloom import jit

    fill_local()
    jitted = jit(lambda x: x * LOCAL.scale, backend="eager")
    results = [jitted(X)]

    def elsewhere():
        LOCAL.scale = 4
        results.append(jitted(X))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    results.append(jitted(X))
    assert [torch.equal(r, X * k) for r, k in zip(results, (3, 4, 3), strict=True)] == [True] * 3
