"""What runs while a container is looked into: hashes and comparisons of keys, lengths asked for, comparisons that change what is compared.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import copy
import functools
from dataclasses import dataclass

from tests.programs.program import X, program


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@program()
def key_of_a_frozen_dataclass_kept(x):
    table = {Point(1, 2): x + 1}
    table[Point(1, 3)] = x
    return table[Point(1, 2)], len(table), {Point(0, 0)}


class Name:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Name) and self.name == other.name


@program(breaks="dictionary_key dictionary_key")
def key_changed_after_it_was_stored(x):
    key = Name("a")
    table = {key: 1}
    key.name = "b"
    return x + 1, Name("b") in list(table), hash(key) == hash("b"), table


@program()
def key_of_equal_hash_found(x):
    table = {Name("a"): 1}
    table[Name("a")] = 2
    table.setdefault(Name("a"), 3)
    return x + 1, list(table.values())


class Counting:
    def __init__(self):
        self.count = 0

    def __hash__(self):
        self.count += 1
        return 42


@program(graphs=1, breaks="dictionary_key dictionary_key")
def hash_that_counts(x):
    key = Counting()
    table = {key: 5}
    table.setdefault(key, 6)
    return x + 1, key.count


class Watching:
    def __init__(self, seen):
        self.seen = seen

    def __hash__(self):
        return 5

    def __eq__(self, other):
        if self.seen:
            self.seen.append(1)
        return False


@program(graphs=1, breaks="dictionary_key dictionary_key")
def comparison_that_changes_its_mind(x):
    seen = []
    table = {}
    table[Watching(seen)] = 1
    table[Watching(seen)] = 2
    seen.append(0)
    return x + 1, seen, len(table)


class Copied:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __deepcopy__(self, memo=None):
        return Copied(self.value + 1)


@program()
def deep_copy_of_a_set(x):
    key = Copied(10)
    copies = [copy.deepcopy({key}), copy.deepcopy(frozenset([key])), copy.deepcopy({key: 1})]
    shallow = copy.copy({key})
    values = [member.value for table in copies for member in table]
    return x + 1, values, [member is key for member in shallow]


class Clearing:
    def __init__(self, other):
        self.other = other

    def __eq__(self, other):
        self.other.clear()
        return NotImplemented


@program()
def comparison_that_empties_both_lists(x):
    a, b = [], []
    a.append(Clearing(b))
    b.append(Clearing(a))
    equal = a == b
    c = []
    c.append(Clearing(c))
    return x + 1, equal, c == [1]


class Sized:
    def __init__(self):
        self.asked = 0

    def __iter__(self):
        return iter([1, 2])

    def __len__(self):
        self.asked += 1
        return 2


class Hinting(Sized):
    def __len__(self):
        raise TypeError

    def __length_hint__(self):
        self.asked += 1
        return 2


@program()
def length_asked_when_a_list_is_made(x):
    counts = []
    for items in (Sized(), Hinting()):
        for make in (list, tuple, sorted, set, sum, lambda i: [*i], lambda i: [].extend(i), lambda i: max(*i)):  # fmt: skip
            make(items)
            counts.append(items.asked)
    return x + 1, counts


SEEN = []


class Noticed:
    def __hash__(self):
        return hash("scale")

    def __eq__(self, other):
        SEEN.append(other)
        return False


class Scaled:
    scale = 3


SCALED = Scaled()
SCALED.__dict__[Noticed()] = 0


@program(graphs=0, breaks="attribute", before=SEEN.clear, state=lambda: len(SEEN))
def name_that_is_no_string(x):
    return SCALED.scale


KNOWN = set()
THING = object()


def know_thing():
    KNOWN.clear()
    KNOWN.add((id(THING), 1))


@program(before=know_thing, state=lambda: len(KNOWN), breaks="identity")
def identity_among_numbers(x):
    y = x + 1
    return y, (id(THING), 1) in KNOWN


class Backwards(type):
    def mro(cls):
        return type.mro(cls)[::-1]


class Base:
    pass


class Odd(Base, metaclass=Backwards):
    pass


@program()
def order_without_the_metaclass(x):
    return x + 1, type.mro(Odd), Odd.__mro__


def fresh_dispatcher():
    global SHOW
    SHOW = functools.singledispatch(lambda value: "any")
    SHOW.register(int, lambda value: "int")


@program(before=fresh_dispatcher, breaks="exception library_call", calls=[(X,)])
def registered_meanwhile(x):
    y = x + 1
    SHOW.register(bool, lambda value: "bool")
    return y, SHOW(True)


class Holder:
    pass


class Ring:
    def __init__(self, members, pair):
        self.members, self.pair = members, pair

    def is_closed(self):
        return (
            all(m.members is self.members for m in self.members) and self.pair[0].pair is self.pair
        )


@program(breaks="print")
def frozen_set_that_contains_itself(x):
    held, also = Holder(), Holder()
    members, pair = frozenset([held]), (also,)
    held.members, also.pair = members, pair
    ring = Ring(members, pair)
    y = x + 1
    print()
    return y, ring.is_closed()
