"""Containers fed by what looks at them: generators, iterators and mappings of the program see what was done with the items before."""

import collections
import functools
import itertools
import math
import operator

import pytest
import torch

from tests.capture.capturing import jitted
from tests.capture.guards.test_guard_kinds import shown

X = torch.ones(2)


def program(text, start):
    """`c` is the container, `log` what was seen of it meanwhile."""
    names = dict(
        collections=collections,
        functools=functools,
        math=math,
        operator=operator,
        itertools=itertools,
    )
    exec(
        f"""
def f(x):
    log = []
    c = {start}
    def g(items=(1, 2, 3)):
        for i in items:
            log.append((i, repr(c)))
            yield i
        log.append('end')
    def h(i):
        log.append(('h', i, repr(c)))
        return i
    class K:
        def __init__(s, d): s.d = d
        def keys(s): log.append(('keys', repr(c))); return list(s.d)
        def __getitem__(s, k): log.append((k, repr(c))); return s.d[k]
    class I:
        def __getitem__(s, i):
            log.append((i, repr(c)))
            if i > 2: raise IndexError
            return i + len(c)
        def __len__(s): log.append('len'); return 3
    class N:
        def __iter__(s): s.i = 0; return s
        def __next__(s):
            s.i += 1; log.append((s.i, repr(c)))
            if s.i > 3: raise StopIteration
            return s.i
    class A:
        def __init__(s, v): s.v = v
        def __add__(s, o): log.append(('add', s.v)); return A(s.v + getattr(o, 'v', o))
        __radd__ = __add__
        def __mul__(s, o): log.append(('mul', s.v)); return A(s.v * getattr(o, 'v', o))
        __rmul__ = __mul__
        def __lt__(s, o): log.append(('lt', s.v, o.v, repr(c))); return s.v < o.v
        def __gt__(s, o): log.append(('gt', s.v, o.v, repr(c))); return s.v > o.v
        def __eq__(s, o): log.append(('eq', s.v, repr(c))); return s.v == getattr(o, 'v', o)
        def __hash__(s): return hash(s.v)
        def __repr__(s): return f'A({{s.v}})'
    y = x + 1
    try:
        {text}
    except Exception as e:
        log.append((type(e).__name__, str(e)))
    return y, repr(c), log
""",
        names,
    )
    return names["f"]


CASES = [
 *(("[9]", t) for t in ["c.extend(g())", "c += g()", "c[:] = g()", "c[1:] = g()", "c.__init__(g())", "c.extend(I())", "c.extend(N())", "c.extend(map(h, c[:]))", "c.extend(zip(g(), g()))", "c.extend(enumerate(g()))", "c.extend(filter(h, (1, 0)))", "c.extend(c)", "c += c", "c.extend(reversed(c))", "c.extend(i + len(c) for i in (1, 2))", "c = c + [*g()]", "c = [*c, *g()]", "c.extend({i: len(c) for i in g()})", "c.extend(h(i) for i in g())", "a, b = g()", "a, b, d = g()", "a, b, d, e = g()", "a, *b = g()", "c.append(sum(g()))", "c.append(max(g(), key=h))", "c.append(min(g((3, 1, 2)), key=h))", "c.append(functools.reduce(lambda a, b: h(a) + b, g()))", "c.append(sum(map(A, g()), A(0)).v)", "c.append(math.prod(map(A, g()), start=A(1)).v)", "c.append(2 in g())", "c.append(any(i == 2 for i in g()))", "c.append(all(i == 1 for i in g()))", "c.append(max(map(A, g((1, 3, 2)))).v)", "c.append(dict(zip(g(), g())))", "c.append(list(zip(g(), N())))", "c.append(tuple(g()))", "c.append(next(g()))", "c.append(operator.countOf(g(), 2))", "c.append(operator.indexOf(g(), 2))", "c.append(2 in N())", "c.append(2 in I())", "c.append([*itertools.islice(g(), 2)])", "c.append([*itertools.takewhile(lambda i: i < 2, g())])", "c.append([*itertools.accumulate(g(), lambda a, b: h(a) + b)])", "c.append(','.join(str(h(i)) for i in g()))", "c.append(sorted(g(), key=h))", "c.append(collections.deque(g(), 2))", "c.append([*itertools.chain(g(), g())])", "c.append(set(g()))", "c.append({i: h(i) for i in g()})", "c.append(dict.fromkeys(g()))", "h(*g())"]),
 *(("[3, 1, 2]", t) for t in ["c.sort(key=h)", "c.sort(key=lambda i: c.append(i) or i)", "c.sort(key=lambda i: -i)", "c.sort(key=A)", "c.remove(A(1))", "c.index(A(2))", "c.count(A(2))", "A(2) in c", "c.sort(key=lambda i: 1 // 0)", "c.sort(key=lambda i: len(c))", "sorted(c, key=h)", "max(c, key=h)", "c.append(c.index(2))", "[c.append(i) for i in c if len(c) < 6]", "[c.pop() for i in c]", "c[::2] = g((7, 8))", "c[0:1] = (len(c) for _ in range(3))", "del c[:2]; c.extend(g())", "c.insert(0, next(g()))", "c *= 2"]),
 *(("{}", t) for t in ["c.update((k, len(c)) for k in 'abc')", "c.update(zip('abc', g()))", "c |= ((k, len(c)) for k in 'abc')", "c.update(K({1: 2, 3: 4}))", "c.update(K({1: 2}), a=5)", "c = dict(K({1: 2}))", "c = dict((k, len(c)) for k in g())", "c = {**K({1: 2, 3: 4})}", "c.update({i: len(c) for i in g()})", "c.update([(1, 2), (3,)])", "c.update((i, i) for i in g())", "c.setdefault(1, len(c))", "c.update(a=len(c))", "c = c | {1: len(c)}", "c = dict.fromkeys(g(), len(c))", "c.update(g())", "c.update((k, c.get(k)) for k in (1, 1))", "c.update([[1, 2]] + [g((1, 2))])", "c = {k: len(c) for k in g()}"]),
 *(("{1: 1, 2: 2}", t) for t in ["c.update((k + 5, v) for k, v in c.items())", "c.update((k, v + len(c)) for k, v in c.items())", "[c.pop(k) for k in c]", "[c.update({k: 5}) for k in c]", "c.update({k + 1: v for k, v in c.items()})", "c.pop(next(g()))", "c |= c", "c.update(c)"]),
 *(("collections.OrderedDict()", t) for t in ["c.update((k, len(c)) for k in 'abc')", "c.update(K({1: 2}))", "c |= ((k, len(c)) for k in 'abc')"]),
 *(("collections.defaultdict(int)", t) for t in ["c.update((k, len(c)) for k in 'abc')", "c.update((k, c[k + 'q']) for k in 'abc')"]),
 *(("collections.Counter()", t) for t in ["c.update(len(c) for _ in range(3))", "c.update(g())", "c.update(g((1, 1, 2)))", "c.subtract(len(c) for _ in range(3))", "c.update(K({1: 2}))", "c.update({1: 2})", "c += collections.Counter(g())", "c = collections.Counter(g((1, 1)))"]),
 *(("set()", t) for t in ["c.update(len(c) for _ in range(3))", "c.update(g())", "c.update(g(), g((4, 5)))", "c |= set(g())", "c = {*g(), *c}", "c.update(N())", "c.add(next(g()))", "c = {len(c) for _ in g()}", "c.update({i: len(c) for i in g()})"]),
 *(("{1, 2, 9}", t) for t in ["c.difference_update(g())", "c.intersection_update(g())", "c.symmetric_difference_update(g())", "c.update(i + 1 for i in c)", "c.isdisjoint(g())", "c.issuperset(g())", "c.issubset(g())", "c.issuperset(g((1, 2)))", "c = c.union(g())", "c = c.difference(g())", "c = c.intersection(g())", "c.difference_update(g((1,)), g((2,)))", "c -= set(g())", "c.difference_update(c)", "c.discard(next(g()))", "[c.discard(i) for i in c]", "c.isdisjoint(N())", "c.difference_update(len(c) for _ in range(4))", "c = frozenset(g()) | c", "c.symmetric_difference_update([1, 7])", "c.isdisjoint([5, 1])", "c.issuperset([1, 2])", "c.issuperset({5: 1})", "c.isdisjoint({1: 1})"]),
 *(("collections.deque([1])", t) for t in ["c.extend(v + c[0] for v in range(3))", "c.extendleft(v + c[0] for v in range(3))", "c.extend(g())", "c += g()", "c.extend(c)", "c.extendleft(c)", "c.extend(i for i in c)", "c.extend(N())", "c.__init__(g())", "[c.append(i) for i in c]"]),
 *(("collections.deque([1], 2)", t) for t in ["c.extend(g())", "c.extendleft(g())", "c += g()", "c.extend(c)"]),
]  # fmt: skip


@pytest.mark.parametrize("start, text", CASES)
def test_fed(start, text):
    f = program(text, start)
    target, _ = jitted(f)
    for _ in range(2):
        assert shown(target(X)) == shown(f(X))


SETS = [
    "c = {1, 2, 9}; c.discard(1); d = set(c)",
    "c = {16, 3, 17, (8,), True}; d = c.copy()",
    "c = {0, 8, 16}; d = c ^ {8, 24}; c ^= {8, 24}",
    "c = {True, 2}; d = c & {1, 2}; c = {1, 2} & c",
    "c = {True} | {1}; d = {1} | {True}",
    "c = {3, 16}; d = c.union([17]); c |= {17, 24}",
    "c = {9, 1, 2}; c -= {1}; d = frozenset(c) | {17}",
    "c = {1, 17, 33}; c.symmetric_difference_update([1, 7]); d = set(list(c))",
    "c = {8, 0}; d = {*c, 16}; c.update({24: 1, 1: 2})",
    "c = {8, 0, 1}; d = c - {8}; c &= {0, 1, 5}",
]


@pytest.mark.parametrize("text", SETS)
def test_order_of_sets(text):
    """Sets leave the graph with the order that they have in plain Python, and with the same ones of equal items."""
    names = {}
    exec(f"def f(x): y = x + 1; {text}; return y, list(c), list(d), c, d, repr(c)", names)
    target, _ = jitted(names["f"])
    assert shown(target(X)) == shown(names["f"](X))
