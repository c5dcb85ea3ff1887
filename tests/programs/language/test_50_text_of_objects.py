"""`str`, `repr`, `%` and `str.format` of objects whose text is made by Python code, of containers of them, and of constants.

PYTEST_DONT_REWRITE
"""

import collections
import dataclasses
import enum

import torch

from tests.programs.changing import changes
from tests.programs.program import X, program


class Named:
    def __init__(self, name):
        self.name = name
        self.asked = 0

    def __str__(self):
        self.asked += 1
        return f"Named({self.name})"


class Shown:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return "<shown %s>" % self.n

    def __getitem__(self, key):
        return self.n if key == "n" else "?"


class Formatted:
    def __format__(self, spec):
        return f"as {spec or 'nothing'}"


@dataclasses.dataclass
class Config:
    width: int = 3
    names: list = dataclasses.field(default_factory=lambda: ["a"])
    inner: object = None


Point = collections.namedtuple("Point", "x y")
SHOW = "shown: %s"
UNITS = {"colour": "rgb"}


class Colour(enum.Enum):
    RED = 1

    def __str__(self):
        return f"{self.name} in {UNITS['colour']}"


@program()
def remainder_of_objects(x):
    a, b = Named("a"), Shown(4)
    return (
        x + 1,
        "%s" % a,
        "%s and %r" % (b, b),
        "%(a)s %(b)d" % {"a": a, "b": 3},
        "%s" % b,
        "%(n)s" % b,
        a.asked,
    )


@program()
def format_of_objects(x):
    a, b = Named("a"), Shown(4)
    text = "{} {!r:>12} {c} {b[n]} {e.name} {d:>4}".format(
        a, b, c=Config(), b=b, d=Formatted(), e=a
    )
    return x + 1, text, "{a}".format_map({"a": b}), f"{a} {b!r} {Formatted():q} {[b, a.asked]}"


@program()
def text_of_containers_of_objects(x):
    b = Shown(1)
    nested = [b, (b, {"k": [b], 3: Config(inner=b)})]
    return (
        x + 1,
        str(nested),
        repr((b,)),
        f"{nested}",
        "%s" % nested,
        str(Point(b, 1)),
        "%r" % ([],),
    )


@program()
def text_in_the_message_of_an_exception(x):
    try:
        raise ValueError("bad", Shown(x.shape[0]))
    except ValueError as error:
        return x + 1, str(error), f"{error!r}"


@program(args=lambda: (X, Named("given"), [Shown(2)]))
def text_of_given_objects(x, named, items):
    return x + 1, "%s %s" % (named, items)


@program(graphs=1)
def text_of_a_tensor_in_a_message_not_shown(x):
    if x.dim() != 2:
        raise ValueError(SHOW % x)
    text = "{} is unused".format(x)
    del text
    return x + 1


@program(graphs=1, breaks="item")
def text_of_a_tensor_that_is_shown(x):
    return SHOW % x, x + 1


@program()
def text_of_enum_members_with_their_own(x):
    return (
        x + 1,
        str(Colour.RED),
        f"{Colour.RED}",
        "%s" % Colour.RED,
        str([Colour.RED]),
        repr(Colour.RED),
    )


@program(graphs=0, breaks="unknown_call")
def wrong_number_of_values(x):
    try:
        text = "%s" % (Named(1), 2)
    except TypeError as error:
        text = str(error)
    return x + 1, text


@program()
def text_of_torch_objects(x):
    return (
        x + 1,
        f"{x.dtype} {x.device} {x.shape} {torch.strided}",
        "%s" % x.device,
        "{}".format(x.dtype),
        str([x.dtype]),
    )


@changes
def what_a_text_reads():
    config = Config(3, ["a"])
    yield lambda x: (x + len("%s" % [config]), str(Colour.RED), "{}".format(config))
    config.names.append("bb")
    yield
    config.width = 1000
    yield
    UNITS["colour"] = "cmyk"
    yield
    config.unread = 1
    yield
    UNITS["colour"] = "rgb"


@changes
def how_a_text_is_made():
    class A:
        def __repr__(self):
            return "A"

    a = A()
    yield lambda x: (x + 1, "%s" % a, f"{a}")
    A.__str__ = lambda self: "changed"
    yield
    A.__format__ = lambda self, spec: "formatted"
    yield
