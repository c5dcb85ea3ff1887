"""Builtin functions.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


class Thing:
    size = 3

    def __init__(self):
        self.name = "thing"

    def method(self):
        return self.name


@program()
def enumerate_and_zip(x):
    out = []
    for i, (a, b) in enumerate(zip(x, x + 1), start=1):
        out.append(a * b * i)
    return (
        out,
        list(zip("ab", [1, 2], strict=True)),
        list(zip()),
        dict(zip("ab", (1, 2))),
        list(zip(*[(1, 2), (3, 4)])),
    )


@program()
def zip_of_unequal_lengths_is_caught(x):
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError as error:
        return x + 1, str(error)


@program()
def map_and_filter(x):
    return (
        list(map(torch.relu, [x, -x])),
        list(map(lambda a, b: a + b, [1, 2], [3, 4])),
        list(filter(None, [0, 1, "", "a"])),
        list(filter(lambda n: n > 1, range(4))),
        sum(map(len, ["a", "bb"])),
    )


@program()
def any_all_sum_min_max(x):
    return (
        sum([x, x]), sum([1, 2], 10), sum([[1], [2]], []), any([0, 1]), all([]), min(3, 1), max([1, 5]), min("b", "a"), max([], default=None),
        max(["a", "bbb"], key=len), min({"k": 1, "j": 2}), any(n > 2 for n in range(4)), all(isinstance(t, torch.Tensor) for t in (x,)), sum(n for n in range(3)), max(1, 2.0), min([(1, "z"), (1, "a")]),
    )  # fmt: skip


@program()
def empty_extremes_are_caught(x):
    found = []
    for f in (min, max):
        try:
            f([])
        except ValueError as error:
            found.append(type(error).__name__)
    return x + 1, found


@program()
def sorted_and_reversed(x):
    return (
        x + 1,
        sorted([3, 1, 2], reverse=True),
        sorted("bca"),
        sorted([(1, "b"), (1, "a")], key=lambda p: p[0]),
        list(reversed("abc")),
        sorted({"b": 0, "a": 1}.items()),
        list(reversed(range(3))),
        sorted([-2, 1], key=abs),
    )


@program()
def sorting_mixed_types_is_caught(x):
    try:
        sorted([1, "a"])
    except TypeError as error:
        return x + 1, str(error)


@program()
def isinstance_and_issubclass(x):
    return (
        x + 1, isinstance(x, torch.Tensor), isinstance(1, (str, int)), isinstance(True, int), isinstance(1, int | str), issubclass(bool, int),
        isinstance(x.shape, tuple), isinstance(None, type(None)), isinstance([], list), isinstance(Thing(), Thing), isinstance(Thing, type), issubclass(Thing, object), isinstance(lambda: 0, object),
    )  # fmt: skip


@program()
def attributes_by_name(x):
    t = Thing()
    setattr(t, "gain", 2)
    delattr(t, "name")
    return (
        x * getattr(t, "gain"),
        hasattr(t, "name"),
        getattr(t, "name", "none"),
        hasattr(x, "shape"),
        hasattr(x, "nope"),
        getattr(x, "ndim"),
        vars(t),
        hasattr(Thing, "method"),
        getattr(torch, "sin")(x),
    )


@program()
def missing_attribute_is_caught(x):
    try:
        Thing().nothing
    except AttributeError as error:
        return x + 1, str(error)


@program()
def types_of_things(x):
    return (
        x + 1,
        type(x) is torch.Tensor,
        type(1),
        type([]) is list,
        type(None),
        type(Thing()) is Thing,
        type(Thing()).__name__,
        type(Thing),
        type(x.dtype),
        type(...),
    )


@program()
def type_builds_an_instance(x):
    t = type(Thing())()
    return x + t.size, t.method()


@program()
def identity_and_hash(x):
    a, b = Thing(), Thing()
    y = x
    return (
        x + 1,
        id(a) == id(a),
        id(a) == id(b),
        id(x) == id(y),
        hash(3),
        hash("k") == hash("k"),
        {id(a): 1}[id(a)],
        hash((1, 2)) == hash((1, 2)),
    )


@program()
def callable_things(x):
    return (
        x + 1,
        callable(len),
        callable(Thing),
        callable(Thing()),
        callable(Thing().method),
        callable(1),
        callable(lambda: 0),
        callable(torch.nn.ReLU()),
    )


@program()
def representations(x):
    return (
        x + 1,
        repr("a"),
        repr(1.0),
        repr([1, {"k": (2,)}]),
        str(Thing),
        ascii("é"),
        format(3.14159, ".2f"),
        format("a", ">3"),
        repr(torch.float32),
        repr(None),
        format(5, "b"),
        repr({1}),
        str([x.shape]),
    )


@program()
def numeric_builtins(x):
    return (
        x * abs(-3),
        round(2.5),
        round(2.567, 1),
        round(-1.5),
        divmod(7, 2),
        pow(2, 3),
        pow(2, -1),
        pow(3, 2, 5),
        hex(255),
        oct(8),
        bin(5),
        chr(97),
        ord("a"),
        int("z", 36),
        round(1234, -2),
        abs(-1.5),
    )


@program()
def iter_with_sentinel(x):
    items = [1, 2, 0, 3]
    it = iter(lambda: items.pop(0), 0)
    return x + sum(it), items


@program()
def next_with_default(x):
    it = iter([1])
    return (
        x + next(it),
        next(it, None),
        next(iter({}), "empty"),
        next((n for n in range(9) if n > 3), None),
    )


@program()
def next_at_the_end_is_caught(x):
    try:
        next(iter([]))
    except StopIteration:
        return x + 1


@program()
def lengths(x):
    return (
        len(x),
        len([x]),
        len("ab"),
        len({}),
        len(x.shape),
        x * len(range(5)),
        len((1,)),
        len(torch.nn.Sequential(torch.nn.ReLU())),
    )


@program()
def not_iterable_is_caught(x):
    found = []
    for action in (
        lambda: iter(1),
        lambda: len(1),
        lambda: list(None),
        lambda: 1 + "a",
        lambda: None(),
        lambda: [][0.5],
    ):
        try:
            action()
        except TypeError as error:
            found.append(str(error))
    return x + 1, found


@program()
def slices_and_ranges_made(x):
    return x[slice(0, 2)] * 2, list(range(*slice(1, 9, 3).indices(7))), slice(3), range(3)[::-1]


@program()
def dir_of_an_object(x):
    t = Thing()
    t.extra = 1
    return x + 1, "extra" in dir(t), [n for n in dir(t) if not n.startswith("_")]


@program()
def globals_lookup(x):
    return x + len(Thing().name), __name__.split(".")[-1], Thing.__module__.split(".")[-1]


@program()
def bool_of_things(x):
    return (
        x + 1,
        bool(Thing()),
        bool(None),
        bool(0.0),
        bool("0"),
        bool([0]),
        bool(torch.nn.ReLU()),
        bool(len),
        not Thing,
    )


@program()
def constructors_without_arguments(x):
    return (
        x + 1,
        int(),
        float(),
        str(),
        bytes(),
        list(),
        dict(),
        tuple(),
        set(),
        frozenset(),
        bool(),
        complex(),
        object() is object(),
    )
