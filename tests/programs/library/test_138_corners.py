"""Corners of Python that are one graph each.

PYTEST_DONT_REWRITE
"""

import dataclasses
import enum
import sys
import types
import typing

from tests.programs.program import X, program


@program()
def exc_info(x):
    try:
        [][0]
    except IndexError:
        a = sys.exc_info()
        y = x + 1
    return y, a[0], str(a[1]), sys.exc_info()


@program()
def fspecs(x):
    w, n = 8, 3.14159
    return x + 1, f"{n:>{w}.2f}|{n!r:^12}|{n=}|{w:#06x}|{w:,}|{1e10:_.1f}|{'s':*<5}|{True:d}"


class Fg(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    C = A | B


@program()
def flags(x):
    f = Fg.A | Fg.B
    return (
        x + f.value,
        f is Fg.C,
        Fg.A in f,
        ~Fg.A,
        list(f),
        f ^ Fg.B,
        bool(f & Fg.A),
        repr(f),
        Fg(3),
    )


T = typing.TypeVar("T")


class NT(typing.NamedTuple, typing.Generic[T]):
    a: T
    b: int = 3


@program()
def ntg(x):
    n = NT[int](x)
    return n.a + n.b, n._replace(b=x), n._asdict().keys(), NT(x, b=4)._fields


@dataclasses.dataclass(slots=True, frozen=True, kw_only=True)
class DC:
    a: object
    s: dataclasses.InitVar[int] = 2
    b: object = dataclasses.field(default=None, compare=False)

    def __post_init__(self, s):
        object.__setattr__(self, "b", self.a * s)


@program()
def dcs(x):
    d = DC(a=x, s=3)
    try:
        d.a = 1
    except dataclasses.FrozenInstanceError as e:
        m = str(e)
    return d.b, m, dataclasses.replace(d, a=x + 1, s=1).b, [f.name for f in dataclasses.fields(d)]


@program()
def matches(x):
    out = []
    for v in (
        {"k": x, "z": 1},
        [1, x, 3],
        (x,),
        DC(a=x),
        5,
        "s",
        None,
        Fg.A,
        [1, [2, 3]],
        -1.5,
        b"q",
    ):
        match v:
            case {"k": y, **rest}:
                out.append((y + 1, rest))
            case [1, [a, b]]:
                out.append((a, b))
            case [1, *mid, 3]:
                out.append(mid)
            case (y,):
                out.append(y * 2)
            case DC(a=q, b=r):
                out.append((q, r))
            case int(n) if n > 3:
                out.append(n)
            case "s" | b"q" as w:
                out.append(w)
            case None:
                out.append("none")
            case Fg.A:
                out.append("A")
            case _:
                out.append(v)
    return out


class Meta(type):
    def __call__(cls, *a):
        o = super().__call__(*a)
        o.tag = cls.__name__
        return o

    def __getitem__(cls, k):
        return (cls.__name__, k)


class Named:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, o, t=None):
        return self if o is None else getattr(o, self.n)

    def __set__(self, o, v):
        setattr(o, self.n, v + 1)


class Ba(metaclass=Meta):
    f = Named()
    subs = []

    def __init_subclass__(cls, k=1, **kw):
        cls.k = k

    def __class_getitem__(cls, i):
        return i

    def __init__(self, v):
        self.f = v


class De(Ba, k=4):
    pass


@program()
def metas(x):
    d = De(x)
    return d.f * d.k, d.tag, De[3], d._f, Ba.k if hasattr(Ba, "k") else None


mod = types.ModuleType("mod")
exec("def __getattr__(n):\n    if n == 'lazy': return 5\n    raise AttributeError(n)", mod.__dict__)


@program()
def modget(x):
    return x + mod.lazy, hasattr(mod, "other"), getattr(mod, "third", 2)


@program()
def walrus(x):
    z = [last := y + 1 for y in (x, x * 2)]
    return (
        z,
        last,
        any((hit := v) > 2 for v in [1, 3, 5]),
        hit,
        [*range(2), *z[:1]],
        {**{"a": 1}, "b": x},
    )


@program()
def nested(x):
    n = 0

    def a():
        nonlocal n
        n += 1

        def b():
            nonlocal n, x
            n *= 3
            x = x + n
            return n

        return b

    r = a()() + a()()
    return x, n, r


def reset_acc():
    acc.__defaults__[0].clear()


@program(before=reset_acc, state=lambda: list(acc.__defaults__[0]))
def acc(x, l=[]):
    l.append(x.sum())
    return x + len(l), list(l)


def gen(x):
    try:
        got = yield x + 1
        while got:
            got = yield x * got
    except ValueError as e:
        yield str(e)
    finally:
        x.add_(1)
    return 5


@program()
def gendrive(x):
    g = gen(x)
    a = [next(g), g.send(2)]
    a.append(g.throw(ValueError("t")))
    try:
        next(g)
    except StopIteration as s:
        a.append(s.value)
    h = gen(x)
    next(h)
    h.close()
    return a, x


@program()
def recursion(x, n=40):
    return x if n == 0 else recursion(x + 1, n - 1) * 1
