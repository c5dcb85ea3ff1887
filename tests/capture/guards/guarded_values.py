"""Classes and objects whose instances the guards must tell apart (test_guard_kinds.py)."""

import collections
import contextvars
import dataclasses
import decimal
import enum
import functools
import types

import torch


class Plain:
    """Hashed by identity."""


class Other(Plain):
    pass


class Equal:
    """Equal and hashed as its number."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Equal) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


class EqualToAll:
    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


class Truth:
    def __init__(self, truth):
        self.truth = truth

    def __bool__(self):
        return self.truth


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i * self.n

    def __contains__(self, item):
        return item == self.n


class Text(str):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Items(list):
    pass


class Table(dict):
    pass


class Pair(tuple):
    pass


Point = collections.namedtuple("Point", "a b")
Place = collections.namedtuple("Place", "a b")


@dataclasses.dataclass
class Data:
    a: object = 1
    b: object = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object = 1


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, **values):
        for name, value in values.items():
            setattr(self, name, value)


class InClass:
    a = 1


class Computed:
    def __init__(self, n):
        self.n = n

    @property
    def a(self):
        return self.n + 1


class Asked:
    """Says what it lacks."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"no {name} among {sorted(self.__dict__)}"


class Meta(type):
    a = 5

    @property
    def b(cls):
        return cls.__name__


class WithMeta(metaclass=Meta):
    pass


class WithMetaToo(metaclass=Meta):
    a = 6


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    ALSO_RED = 1


class Shade(enum.IntEnum):
    RED = 1
    GREEN = 2


class Bits(enum.Flag):
    A = 1
    B = 2


class IntBits(enum.IntFlag):
    A = 1
    B = 2


def attributes(cls=Plain, **values):
    obj = cls()
    obj.__dict__.update(values)
    return obj


def closure_of(n):
    return lambda: n


def default_of(n):
    return lambda a=n, *, b=n: (a, b)


def with_attribute(n):
    def f():
        return f.n

    f.n = n
    return f


def generator(n):
    yield from range(n)


def advanced(iterator, n):
    for _ in range(n):
        next(iterator)
    return iterator


class Holder:
    def __init__(self, n):
        self.n = n

    def method(self):
        return self.n

    def other(self):
        return -self.n

    @classmethod
    def of_class(cls):
        return cls.__name__


class SubHolder(Holder):
    pass


def module_with(hook=None, training=True, weight=None):
    m = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.ones_(m.weight)
    if weight is not None:
        m.weight = weight
    if hook is not None:
        m.register_forward_hook(hook)
    return m.train(training)


def namespace(**values):
    module = types.ModuleType("namespace")
    module.__dict__.update(values)
    return module


def ordered(pairs):
    return collections.OrderedDict(pairs)


def moved_to_end(key, pairs):
    table = collections.OrderedDict(pairs)
    table.move_to_end(key)
    return table


def default_dict(factory, **items):
    table = collections.defaultdict(factory)
    table.update(items)
    return table


def tied():
    m = torch.nn.Sequential(module_with(), module_with())
    m[1].weight = m[0].weight
    return m


O, P, Q = Plain(), Plain(), Other()  # noqa: E741
T, U = torch.zeros(2), torch.zeros(2)
W = torch.nn.Parameter(torch.ones(2, 2))
NAN, OTHER_NAN = float("nan"), float("nan")
KEYS = {O: "o", P: "p", (O, 1): "o1", (P, 1): "p1", Plain: "class", T: "t", len: "len", Equal(1): "equal", 1: "one", "a": "text", None: "none", torch.float32: "dtype", Color.RED: "red", generator: "function"}  # fmt: skip


class Missing(dict):
    def __init__(s, d=5, **k):
        super().__init__(**k)
        s.d = d

    def __missing__(s, k):
        return s.d


class EqOnly:
    def __init__(s, n):
        s.n = n

    def __eq__(s, o):
        return getattr(o, "n", o) == s.n


class Key(str):
    def __new__(cls, text, h):
        k = super().__new__(cls, text)
        k.h = h
        return k

    def __hash__(s):
        return s.h

    def __eq__(s, o):
        return isinstance(o, Key) and s.h == o.h


class Desc:
    def __init__(s, n):
        s.n = n

    def __get__(s, o, c=None):
        return s.n


def with_desc(n):
    return type("D", (), {"a": Desc(n)})()


class GetAttribute:
    def __init__(s, n):
        object.__setattr__(s, "n", n)

    def __getattribute__(s, name):
        return object.__getattribute__(s, "n") if name == "a" else object.__getattribute__(s, name)


class Cached:
    def __init__(s, n):
        s.n = n

    @functools.cached_property
    def a(s):
        return s.n * 2


def cached(n):
    c = Cached(n)
    assert c.a == 2 * n
    return c


def reclassed(cls):
    o = Plain()
    o.__class__ = cls
    return o


class Call:
    def __init__(s, n):
        s.n = n

    def __call__(s):
        return s.n


class Iter:
    def __init__(s, n):
        s.n = n

    def __iter__(s):
        return iter(range(s.n))


class Next:
    def __init__(s, n):
        s.n = n

    def __iter__(s):
        return s

    def __next__(s):
        if s.n <= 0:
            raise StopIteration
        s.n -= 1
        return s.n


class Len0(list):
    def __bool__(s):
        return True


class Num:
    def __init__(s, n):
        s.n = n

    def __index__(s):
        return s.n

    def __float__(s):
        return float(s.n)

    def __radd__(s, o):
        return o + s.n

    def __rmul__(s, o):
        return o * s.n


class Fmt:
    def __init__(s, n):
        s.n = n

    def __format__(s, spec):
        return f"<{s.n}{spec}>"

    def __str__(s):
        return f"s{s.n}"

    def __repr__(s):
        return f"r{s.n}"


class Ctx:
    def __init__(s, n):
        s.n = n

    def __enter__(s):
        return s.n

    def __exit__(s, *a):
        return False


@functools.lru_cache
def lru(n):
    return n


LRU2 = functools.lru_cache(lambda n: n + 1)
CV, CV2 = contextvars.ContextVar("a", default=1), contextvars.ContextVar("b", default=2)
D = decimal.Decimal


def fn_with(**k):
    def f(a=1, *, b=2):
        return a, b

    for n, v in k.items():
        setattr(f, n, v)
    return f


def module_buf(**k):
    m = torch.nn.Identity()
    for n, v in k.items():
        if isinstance(v, torch.Tensor):
            m.register_buffer(n, v)
        else:
            setattr(m, n, v)
    return m


class New:
    """Made anew for each call."""

    def __init__(self, make):
        self.make = make


SET, FROZEN = {O, P, T, module_with(), 1, None}, frozenset({O, T, 1})
LIST, DEQUE, COUNTS = [O, 1], collections.deque([O, 1]), collections.Counter([O, O, P])
BY_ID = {id(O): "o", id(P): "p"}


@functools.lru_cache(None)
def name_of(obj):
    return type(obj).__name__, obj is O
