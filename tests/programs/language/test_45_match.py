"""match: every kind of pattern.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

from dataclasses import dataclass
from enum import Enum

from tests.programs.program import X, program


@dataclass
class Point:
    x: int
    y: int


class Circle:
    __match_args__ = ("centre", "radius")

    def __init__(self, centre, radius):
        self.centre, self.radius = centre, radius


class Colour(Enum):
    RED = 1
    BLUE = 2


def literal(x, v):
    match v:
        case 1:
            return x + 1
        case "s":
            return x * 2
        case None:
            return x - 1
        case True:
            return x * 5
        case -3.5:
            return x * 7
    return x * 0


def sequence(x, v):
    match v:
        case []:
            return x + 0
        case [n]:
            return x + n
        case [1, n] | [n, 1]:
            return x * n
        case [first, *rest, last]:
            return x + first - last, rest
        case _:
            return x + 100


def mapping(x, v):
    match v:
        case {"op": "add", "n": n}:
            return x + n
        case {"op": ("mul" | "times") as op, **rest}:
            return x * 2, op, rest
        case {}:
            return x + 1, len(v)
        case other:
            return x, type(other).__name__


def classes(x, v):
    match v:
        case Point(x=0, y=0):
            return x + 1
        case Point(a, y=b) if a > b:
            return x * a
        case Point():
            return x * 3
        case Circle(Point(_, c), radius=r):
            return x + c + r
        case int(n) | float(n):
            return x - n
        case str() as text:
            return x + len(text)
        case Colour.RED:
            return x * 9
        case tuple((a, b)):
            return x + a + b
    return x * 0


def nested(x, v):
    match v:
        case {"points": [Point(a, b), *_], "name": str(name)} if name:
            return x * a + b, name
        case [{"k": [n]}, (Point() as p)]:
            return x + n + p.x
    return x


VALUES = {
    literal: (1, "s", None, True, -3.5, "other"),
    sequence: ([], [4], [1, 5], (5, 1), [1, 2, 3, 4], "text", range(2)),
    mapping: ({"op": "add", "n": 2}, {"op": "mul", "z": 1}, {}, {"a": 1}, 3),
    classes: (
        Point(0, 0),
        Point(2, 1),
        Point(1, 2),
        Circle(Point(1, 2), 3),
        4,
        1.5,
        "text",
        Colour.RED,
        (1, 2),
        [1],
    ),
    nested: (
        {"points": [Point(2, 3)], "name": "n"},
        {"points": [], "name": "n"},
        [{"k": [5]}, Point(1, 1)],
    ),
}
for _function, _values in VALUES.items():
    for _number, _value in enumerate(_values):

        def one(x, v, function=_function):
            return function(x * 1, v)

        one.__name__ = one.__qualname__ = f"{_function.__name__}_{_number}"
        globals()[one.__name__] = program(args=(X, _value))(one)
del one


class Odd:
    __match_args__ = "not a tuple"


@program()
def wrong_match_args(x):
    try:
        match Odd():
            case Odd(1):
                pass
    except TypeError:
        return x + 1


@program()
def guard_with_side_effects(x):
    log = []
    match [1, 2]:
        case [a, b] if log.append(a):
            return x
        case [a, b] if not log.append(b):
            return x + a + b, log


@program(graphs=2, breaks="print")
def break_in_a_case(x):
    y = x + 1
    match {"k": 2}:
        case {"k": n}:
            print("matched")
            return y * n
