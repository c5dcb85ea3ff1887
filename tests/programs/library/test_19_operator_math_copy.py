"""operator, copy, heapq, bisect, statistics and other small modules.

PYTEST_DONT_REWRITE
"""

import bisect
import copy
import heapq
import math
import operator
import types
import typing
from dataclasses import dataclass, field

import torch

from tests.programs.program import X, program


@program()
def operator_functions(x):
    return (
        operator.add(x, 1), operator.mul(x, x), operator.neg(x), operator.matmul(x, x.t()), operator.getitem(x, 0), operator.truth([]),
        operator.contains([1], 1), operator.concat([1], [2]), operator.not_(0), operator.is_(None, None), operator.index(3),
        operator.floordiv(7, 2), operator.xor(5, 3), operator.eq([1], [1]), operator.is_not(x, None), operator.countOf([1, 1], 1), operator.pos(-1),
    )  # fmt: skip


@program()
def operator_in_place(x):
    a = [1]
    b = operator.iadd(a, [2])
    d = {}
    operator.setitem(d, "k", x)
    operator.delitem(a, 0)
    n = operator.imul(3, 2)
    y = x.clone()
    z = operator.iadd(y, 1)
    return a, b is a, d, n, z is y, y


@program()
def getters(x):
    first, ends, length = (
        operator.itemgetter(0),
        operator.itemgetter(0, -1),
        operator.attrgetter("shape"),
    )
    pairs = [(2, "b"), (1, "a")]
    return (
        first(x),
        ends([1, 2, 3]),
        length(x),
        sorted(pairs, key=operator.itemgetter(1)),
        operator.methodcaller("sum", 0)(x),
        operator.attrgetter("real.imag")(1 + 2j),
        max(pairs, key=operator.itemgetter(0)),
        operator.itemgetter(slice(1))("abc"),
        operator.itemgetter("k")({"k": 1}),
    )


@dataclass
class Node:
    value: object
    children: list = field(default_factory=list)


@program()
def shallow_copy(x):
    a = [x, [1]]
    b = copy.copy(a)
    b[1].append(2)
    d = copy.copy({"k": a})
    n = copy.copy(Node(1, a))
    return (
        a,
        b,
        b is a,
        b[1] is a[1],
        d["k"] is a,
        n.children is a,
        x + 1,
        copy.copy((1, 2)),
        copy.copy({1, 2}),
    )


class Named:
    def __init__(self, **names):
        self.__dict__.update(names)


UNLIKE = [Named(**{f"a{k}": k, "b": 2}) for k in range(6)]


@program()
def copies_of_objects_with_unlike_attributes(x):
    """The keys that a guard expects of one are not those of the one before."""
    return [vars(copy.copy(one)) for one in UNLIKE], x + 1


@program()
def deep_copy(x):
    shared = [1]
    a = {"p": shared, "q": shared, "n": Node(2, [shared])}
    b = copy.deepcopy(a)
    b["p"].append(2)
    return x + 1, a, b, b["p"] is b["q"], b["n"].children[0] is b["p"], b["n"] is a["n"]


@program()
def deep_copy_of_tensors(x):
    y = x + 1
    a = [y, y, x]
    b = copy.deepcopy(a)
    b[0].add_(1)
    return a, b, b[0] is b[1]


class Custom:
    def __init__(self, n):
        self.n = n

    def __deepcopy__(self, memo):
        return Custom(self.n + 100)

    def __copy__(self):
        return Custom(self.n + 1)


@program()
def copies_by_the_class(x):
    c = Custom(1)
    return x + copy.copy(c).n, copy.deepcopy(c), copy.deepcopy([c, c])


@program()
def heaps(x):
    h = [5, 1, 4]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    low = heapq.heappop(h)
    return (
        x + low,
        h,
        heapq.nlargest(2, [1, 5, 3]),
        heapq.nsmallest(2, [1, 5, 3], key=lambda n: -n),
        heapq.heappushpop(h, 9),
        heapq.heapreplace(h, 7),
        h,
        list(heapq.merge([1, 4], [2, 3])),
    )


@program()
def bisection(x):
    a = [1, 3, 3, 7]
    bisect.insort(a, 4)
    return x + bisect.bisect(a, 3), a, bisect.bisect_left(a, 3), bisect.bisect_right([1, 2], 9)


@program()
def types_module(x):
    return (
        x + 1,
        isinstance(lambda: 0, types.FunctionType),
        isinstance(torch.relu, types.BuiltinFunctionType),
        isinstance(math, types.ModuleType),
    )


@program()
def typing_helpers(x):
    y = typing.cast(torch.Tensor, x)
    n: int = 3
    return y + n, typing.TYPE_CHECKING


@program()
def global_math_constants(x):
    return x * math.pi + math.tau, math.e, math.nan != math.nan, math.inf > 1e308
