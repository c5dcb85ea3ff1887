"""Operator methods of user classes: forward, reflected, in place, comparison, containers, conversions.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


class Vec:
    def __init__(self, *v):
        self.v = list(v)

    def __add__(self, o):
        return Vec(*(a + b for a, b in zip(self.v, o.v))) if isinstance(o, Vec) else NotImplemented

    def __radd__(self, o):
        return Vec(*(o + a for a in self.v))

    def __sub__(self, o):
        return Vec(*(a - b for a, b in zip(self.v, o.v)))

    def __mul__(self, n):
        return Vec(*(a * n for a in self.v))

    __rmul__ = __mul__

    def __matmul__(self, o):
        return sum(a * b for a, b in zip(self.v, o.v))

    def __truediv__(self, n):
        return Vec(*(a / n for a in self.v))

    def __floordiv__(self, n):
        return Vec(*(a // n for a in self.v))

    def __rtruediv__(self, n):
        return Vec(*(n / a for a in self.v))

    def __mod__(self, n):
        return Vec(*(a % n for a in self.v))

    def __pow__(self, n):
        return Vec(*(a**n for a in self.v))

    def __rpow__(self, n):
        return Vec(*(n**a for a in self.v))

    def __neg__(self):
        return self * -1

    def __pos__(self):
        return self

    def __abs__(self):
        return sum(abs(a) for a in self.v)

    def __invert__(self):
        return Vec(*reversed(self.v))

    def __lshift__(self, n):
        return Vec(*self.v[n:], *self.v[:n])

    def __rshift__(self, n):
        return self << -n

    def __and__(self, o):
        return Vec(*(a for a in self.v if a in o.v))

    def __or__(self, o):
        return Vec(*self.v, *o.v)

    def __xor__(self, o):
        return "xor"

    def __iadd__(self, o):
        self.v = [a + o for a in self.v]
        return self

    def __eq__(self, o):
        return isinstance(o, Vec) and self.v == o.v

    def __hash__(self):
        return hash(tuple(self.v))

    def __lt__(self, o):
        return self.v < o.v

    def __le__(self, o):
        return self.v <= o.v

    def __len__(self):
        return len(self.v)

    def __getitem__(self, i):
        return Vec(*self.v[i]) if isinstance(i, slice) else self.v[i]

    def __setitem__(self, i, value):
        self.v[i] = value

    def __delitem__(self, i):
        del self.v[i]

    def __contains__(self, a):
        return a in self.v

    def __repr__(self):
        return f"Vec{tuple(self.v)}"

    def __format__(self, spec):
        return "|".join(format(a, spec) for a in self.v)

    def __round__(self, n=None):
        return Vec(*(round(a, n) for a in self.v))

    def __int__(self):
        return int(self.v[0])

    def __float__(self):
        return float(self.v[0])

    def __complex__(self):
        return complex(*self.v[:2])

    def __index__(self):
        return self.v[0]

    def __bool__(self):
        return any(self.v)

    def __reversed__(self):
        return iter(self.v[::-1])

    def __divmod__(self, n):
        return self // n, self % n


@program()
def arithmetic(x):
    a, b = Vec(1, 2), Vec(3, 4)
    return (
        x * (a @ b),
        a + b,
        a - b,
        a * 2,
        3 * a,
        a / 2,
        a // 2,
        b % 2,
        a**2,
        2**a,
        5 + a,
        6 / a,
        sum([a, b], Vec(0, 0)),
        divmod(b, 2),
    )


@program()
def unary_and_bits(x):
    a, b = Vec(1, -2, 3), Vec(3, 4)
    return x + abs(a), -a, +a is a, ~a, a << 1, a >> 1, a & b, a | b, a ^ b


@program()
def in_place(x):
    a = Vec(1, 2)
    b = a
    a += 10
    c = Vec(1, 1)
    d = c
    c *= 3
    return x + a[0], a is b, a, c, d, c is d


@program()
def comparison(x):
    a, b = Vec(1, 2), Vec(1, 3)
    return (
        x + 1,
        a == Vec(1, 2),
        a != b,
        a < b,
        a <= b,
        a > b,
        a >= b,
        a == 5,
        a != None,
        max(a, b),
        sorted([b, a]),
        a in [b, Vec(1, 2)],
        [b, a].index(a),
    )


@program()
def container_protocol(x):
    a = Vec(1, 2, 3)
    a[0] = 9
    del a[1]
    return (
        x + len(a),
        a[0],
        a[-1],
        a[0:1],
        9 in a,
        7 not in a,
        a,
        list(reversed(a)),
        {a: "k"}[Vec(9, 3)],
    )


@program()
def conversions(x):
    a = Vec(3, 4)
    return (
        x + int(a),
        float(a),
        complex(a),
        bool(a),
        bool(Vec(0)),
        [10, 20, 30, 40][a],
        repr(a),
        str(a),
        f"{a:.1f}",
        f"{a!r}",
        round(Vec(1.26, 2), 1),
        "%s" % (a,),
    )


@program()
def iteration_by_getitem(x):
    a = Vec(1, 2, 3)
    total = x
    for n in a:
        total = total + n
    first, *rest = a
    return total, list(a), first, rest, max(a), [*a], list(zip(a, "abc"))


@program()
def unsupported_operands_are_caught(x):
    found = []
    for action in (
        lambda: Vec(1) + 1,
        lambda: Vec(1) @ 3,
        lambda: object() + 1,
        lambda: Vec(1) < 3,
        lambda: object() < object(),
    ):
        try:
            action()
        except (TypeError, AttributeError) as error:
            found.append(str(error))
    return x + 1, found


class Meters(float):
    pass


class Base:
    def __add__(self, o):
        return "base add"

    def __radd__(self, o):
        return "base radd"


class Derived(Base):
    def __radd__(self, o):
        return "derived radd"


@program()
def reflected_of_a_subclass_first(x):
    return x + 1, Base() + Derived(), Derived() + Base(), Base() + Base(), 1 + Base()


class Wrapped:
    def __init__(self, t):
        self.t = t

    def __add__(self, o):
        return Wrapped(self.t + (o.t if isinstance(o, Wrapped) else o))

    __radd__ = __add__

    def __getattr__(self, name):
        return getattr(self.t, name)


@program()
def wrapper_around_a_tensor(x):
    w = Wrapped(x)
    return (w + 1).t, (w + w).t, w.shape, w.sum(), (2 + w).t


class Matrix:
    def __init__(self, t):
        self.t = t

    def __getitem__(self, key):
        return key

    def __setitem__(self, key, value):
        self.t = (key, value)


@program()
def fancy_keys_reach_getitem(x):
    m = Matrix(x)
    m[1, ..., None] = 5
    return x + 1, m[1:2], m[..., 0], m[1, 2:3, None], m.t, m["k"]


class Sized:
    def __len__(self):
        return 0


class Range:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return RangeIterator(self.n)


class RangeIterator:
    def __init__(self, n):
        self.i, self.n = 0, n

    def __iter__(self):
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i


@program()
def iterator_protocol(x):
    r = Range(3)
    it = iter(r)
    first = next(it)
    return (
        x + sum(r),
        list(r),
        first,
        list(it),
        next(it, "end"),
        bool(Sized()),
        [a * b for a, b in zip(r, r)],
        2 in r,
        tuple(r),
        max(r),
    )


@program()
def iterator_object_returned_half_used(x):
    it = iter(Range(4))
    next(it)
    return x + next(it), it


@program()
def calls_with_all_kinds_of_parameters(x):
    class_free = lambda a, /, b, *c, d=1, **e: (a, b, c, d, e)
    return x + 1, class_free(1, 2), class_free(1, b=2, d=3, z=4), class_free(1, 2, 3, 4, **{"a": 5})


def test_tensor_operators_keep_working():
    assert torch.equal((Wrapped(X) + 1).t, X + 1)
