"""Corners of containers and iterators where a careless capture gives another answer.

PYTEST_DONT_REWRITE
"""

import collections
import itertools
import operator

import torch

from tests.programs.program import X, program


@program(graphs=1, breaks="set_order")
def order_of_a_changed_set_argument(x, s=None):
    s = {"a", x.shape, 3} if s is None else s
    s.add(x)
    y = x + 1
    return y, len(list(s))


@program()
def deque_changed_while_iterated_is_caught(x):
    d = collections.deque([1, 2])
    try:
        for _ in d:
            d.append(3)
    except RuntimeError as error:
        return x + 1, str(error), d


@program()
def set_changed_while_iterated_is_caught(x):
    s = {1}
    try:
        for n in s:
            s.add(n + 1)
    except RuntimeError as error:
        return x + 1, str(error)


@program()
def stable_sorting_both_ways(x):
    pairs = [(1, "a"), (0, "b"), (1, "c"), (0, "d")]
    by_first = lambda p: p[0]
    objects = [Key(p) for p in pairs]
    return (
        x + 1,
        sorted(pairs, key=by_first),
        sorted(pairs, key=by_first, reverse=True),
        [o.p for o in sorted(objects)],
        [o.p for o in sorted(objects, reverse=True)],
    )


class Key:
    def __init__(self, p):
        self.p = p

    def __lt__(self, other):
        return self.p[0] < other.p[0]


@program()
def equal_keys_of_different_types(x):
    d = {1: "int", "1": "str"}
    d[1.0] = "float"
    d[True] = "bool"
    return x + len(d), d, {0: 1}[False], {1, 1.0, True}, (1, 2) in {(1.0, 2.0)}


@program()
def not_a_number_in_containers(x):
    nan = float("nan")
    items = [nan, 1.0]
    return (
        x + 1,
        nan in items,
        items.index(nan),
        items.count(nan),
        [nan] == [nan],
        nan == nan,
        {nan: 1}[nan],
        max([1.0, nan]),
        sorted([2.0, 1.0]),
    )


@program()
def negative_zero_and_booleans(x):
    return (
        x * -0.0,
        str(-0.0),
        [-0.0] == [0],
        {0.0: "a"}[-0.0],
        True == 1,
        [True] == [1],
        True is 1 if False else False,
        hash(True) == hash(1),
    )


@program()
def default_factory_that_fails(x):
    def fail():
        raise LookupError("no default")

    d = collections.defaultdict(fail)
    try:
        d["k"]
    except LookupError as error:
        return x + 1, str(error), len(d)


@program()
def zip_uses_up_one_more(x):
    a, b = iter([1, 2, 3]), iter([1])
    pairs = list(zip(a, b))
    return x + 1, pairs, list(a), list(b)


@program()
def map_stops_at_the_shortest(x):
    a = iter([1, 2, 3])
    return x + 1, list(map(operator.add, [10], a)), list(a)


@program()
def sum_of_lists_and_strings(x):
    try:
        sum(["a"], "")
    except TypeError as error:
        return x + 1, str(error), sum([[1], [2]], [])


@program()
def repeated_keys_in_calls_are_caught(x):
    def f(**kwargs):
        return kwargs

    try:
        f(**{"a": 1}, **{"a": 2})
    except TypeError:
        return x + 1, f(**{"a": 1}, b=2)


@program()
def slice_assignment_of_wrong_length_is_caught(x):
    items = [1, 2, 3, 4]
    try:
        items[::2] = [1]
    except ValueError as error:
        return x + 1, str(error), items


@program()
def list_multiplied_by_a_negative(x):
    return x + 1, [1] * -1, "a" * 0, (1,) * -3


@program()
def pop_from_the_middle_and_negative_insert(x):
    items = [1, 2, 3, 4]
    items.insert(-1, 9)
    items.insert(100, 10)
    return x + items.pop(-2), items, items[-100:2]


@program()
def dict_view_follows_its_dict(x):
    d = {"a": 1}
    keys = d.keys()
    first = list(keys)
    d["b"] = 2
    del d["a"]
    return x + 1, first, list(keys), keys, len(keys)


@program()
def ordered_dict_equality_depends_on_the_other(x):
    a = collections.OrderedDict([("x", 1), ("y", 2)])
    b = collections.OrderedDict([("y", 2), ("x", 1)])
    return x + 1, a == b, a == {"y": 2, "x": 1}, {"y": 2, "x": 1} == b, a != b


@program()
def groups_skip_what_was_not_used(x):
    return (
        x + 1,
        [(k, next(g)) for k, g in itertools.groupby("aaabbc")],
        [k for k, g in itertools.groupby([])],
    )


@program(args=lambda: (X, [1, 2, 3]))
def list_argument_iterated_and_changed(x, items):
    for n in items:
        if n == 2:
            items.remove(n)
        x = x + n
    return x


@program(
    args=lambda: (X, {"a": 1}), calls=[(X, {"a": 1}), (X, {"a": True}), (X, {"a": 1.0})], graphs=3
)
def value_types_are_told_apart(x, d):
    return x * d["a"], type(d["a"]).__name__


@program(calls=[(X, [X, X + 1]), (X, [X, X])], graphs=1)
def equal_tensors_in_a_list(x, items):
    return items[0] + items[1]


@program(args=lambda: (X, *(lambda t: ([t], [t]))(X + 1)), graphs=1)
def one_tensor_in_two_lists(x, a, b):
    a[0].add_(1)
    return b[0] * 2, a[0] is b[0]


@program()
def chained_methods_on_views(x):
    d = {"b": 2, "a": 1}
    return (
        x + 1,
        sorted(d.items(), key=operator.itemgetter(1))[0],
        dict(sorted(d.items())),
        max(d, key=d.get),
        list(map(str.upper, d)),
        {v: k for k, v in d.items()},
    )


@program()
def integer_division_and_rounding(x):
    return (
        x + 1,
        -7 // 2,
        -7 % 3,
        7 // -2,
        round(0.5),
        round(1.5),
        round(-2.5),
        int(-0.9),
        divmod(-1, 3),
        2**-1,
        0**0,
        (-8) ** (1 / 3),
        10**20 // 3,
        1e16 + 1,
    )
