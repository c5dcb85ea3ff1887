"""Objects as a whole: hashes, identities among numbers, instances of tuple, modules inside packages.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import sys

from tests.programs.program import X, program


class Hashes:
    def __init__(self, given):
        self.given = given

    def __hash__(self):
        return self.given


@program(args=lambda: (X, Hashes(2**62), Hashes(-1), Hashes(2**70)))
def hash_of_a_large_number(x, a, b, c):
    """What `__hash__` gives is taken as it is where it fits into a word."""
    return x + 1, hash(a), hash(b), hash(c)


@program(args=lambda: (X, Hashes("no number")))
def hash_that_is_no_number(x, a):
    try:
        hash(a)
    except TypeError as error:
        return x + 1, str(error)


class Pair(tuple):
    pass


class NamedPair(tuple):
    def __init__(self, items, name=None):
        self.name = name


@program()
def keywords_that_tuple_refuses(x):
    try:
        Pair(sequence=())
    except TypeError:
        x = x + 1
    try:
        Pair([1], [2])
    except TypeError:
        x = x * 2
    return x, Pair([1, 2]) == (1, 2), NamedPair([1], name=3).name


class Node:
    pass


NODE = Node()
NUMBER = id(NODE)
SEEN = {NUMBER}
NAMES = {(NUMBER, 1): "found"}


@program(graphs=1, breaks="identity dictionary_key")
def identity_among_numbers(x):
    y = x + 1
    return y * 2, id(NODE) in SEEN, NAMES.get((id(NODE), 1))


@program(graphs=1, breaks="identity identity")
def number_among_identities(x):
    y = x + 1
    return y * 2, NUMBER in {id(NODE)}, {id(NODE): 1}.get(NUMBER)


def forget_submodule():
    import json

    sys.modules.pop("json.tool", None)
    json.__dict__.pop("tool", None)


@program(graphs=3, breaks="import", before=forget_submodule)
def module_inside_a_package(x):
    y = x + 1
    from json import tool

    return y * 2, tool.__name__


@program(graphs=6, breaks="class_statement class_statement")
def cells_written_with_what_they_hold(x):
    """That a variable is given the value it has already holds for one turn of the loop only."""
    found = []
    for h, c in ((True, False), (True, True), (False, False)):

        class Pair:
            value = (h, c)

        x = x + 1
        found.append(Pair.value)
    return found, x


@program(breaks="identity")
def equal_string_made_in_the_call_is_another(x):
    y = x + 1
    a = "xyzpdq"
    b = a[:3] + a[3:]
    return y, a is b, a == b


@program(breaks="identity")
def equal_number_made_in_the_call_is_another(x):
    y = x + 1
    a = 1000003
    b = len(x) * 0 + a - 1 + 1
    return y, a is b


LONG = "".join(["long", "er"])


@program(calls=[(X, LONG, 12345.5), (X, "longer", float("12345.5"))], breaks="print", graphs=1)
def argument_equal_to_that_of_another_call(x, text, number):
    y = x + 1
    print("between")
    return y, [text], [number]


def test_the_argument_itself_comes_out_behind_a_break():
    from frameloom import jit

    def fn(x, text, number):
        y = x + 1
        print("between")
        return y, text, number

    fast = jit(fn)
    for text, number in ((LONG, 12345.5), ("".join(["long", "er"]), float("12345.5"))):
        out = fast(X, text, number)
        assert out[1] is text
        assert out[2] is number


ASKED = []


class Watched(type(sys)):
    def __getattribute__(self, name):
        ASKED.append(name)
        return super().__getattribute__(name)


@program(
    args=lambda: (X, Watched("watched")),
    before=ASKED.clear,
    state=lambda: list(ASKED),
    graphs=2,
    breaks="attribute attribute_write attribute attribute_write",  # another object, of which nothing is known, at each call
)
def object_that_notes_what_is_asked(x, watched):
    return x + hasattr(watched, "absent"), setattr(watched, "word", 1)
