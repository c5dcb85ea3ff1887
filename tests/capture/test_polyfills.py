"""The library functions said again in Python do what those in C do, from any place on."""

import bisect
import functools
import heapq
import itertools
import random
from itertools import islice

import pytest

from frameloom.capture.library.containers import combinatorics, heaps
from frameloom.capture.library.containers import itertools as ours

A = [3, 1, 4, 1, 5]
odd = lambda n: n % 2
CASES = [
    (ours.Count, (2, 3)), (ours.Count, ()), (ours.Count, (0.5, 0.25)), (ours.Cycle, (A,)), (ours.Cycle, ([],)), (ours.Repeat, ("x",)),
    (ours.Repeat, ("x", 3)), (ours.Repeat, ("x", -1)), (ours.Chain, (A, "ab", [])), (ours.Chain, ()), (ours.ChainFromIterable, ([A, [], "ab"],)),
    (ours.Islice, (A, 3)), (ours.Islice, (A, 1, None)), (ours.Islice, (A, 1, 4, 2)), (ours.Islice, (range(20), 0, 11, 3)), (ours.Islice, (A, 4, 2)),
    (ours.Islice, (A, None)), (ours.Islice, (range(10), None, None, 4)), (ours.Accumulate, (A,)), (ours.Accumulate, (A, max)), (ours.Accumulate, ([],)),
    (ours.Compress, (A, [1, 0, 1, 1])), (ours.FilterFalse, (odd, A)), (ours.FilterFalse, (None, [0, 1, 0])), (ours.DropWhile, (odd, A)),
    (ours.TakeWhile, (odd, A)), (ours.StarMap, (pow, [(2, 3), (3, 2)])), (ours.ZipLongest, (A, "ab")), (ours.ZipLongest, ()), (ours.Pairwise, (A,)),
    (ours.Pairwise, ([1],)), (ours.GroupBy, ([1, 1, 2, 3, 3],)), (combinatorics.Product, ("ab", [1, 2])), (combinatorics.Product, ()), (combinatorics.Permutations, (A, 2)),
    (combinatorics.Permutations, ("abc",)), (combinatorics.Permutations, ("ab", 3)), (combinatorics.Combinations, ("abcd", 2)), (combinatorics.Combinations, ("ab", 3)),
    (combinatorics.CombinationsWithReplacement, ("abc", 2)), (combinatorics.CombinationsWithReplacement, ("", 2)),
]  # fmt: skip
if hasattr(itertools, "batched"):
    CASES += [(ours.Batched, (A, 2)), (ours.Batched, ([], 2))]


def real(cls, args):
    make = itertools.chain.from_iterable if cls is ours.ChainFromIterable else cls.real_class
    return make(*args)


def taken(iterator, count):
    """The items; groups as lists."""
    found = []
    while len(found) < count:
        try:
            item = iterator.__next__()
        except StopIteration:
            break
        found.append(item if not isinstance(iterator, ours.GroupBy | itertools.groupby) else (item[0], taken(item[1], count)))  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("cls", "args"), CASES, ids=[f"{cls.__name__}{n}" for n, (cls, _) in enumerate(CASES)]
)
def test_iterator(cls, args):
    assert taken(cls(*args), 30) == taken(real(cls, args), 30)
    for count in range(8):
        copy, original = cls(*args), real(cls, args)
        assert taken(copy, count) == taken(original, count)
        if not hasattr(cls, "left"):
            continue
        rest = cls.left(*copy.__dict__.values())
        assert type(rest) is type(original) or isinstance(rest, itertools.islice)
        assert list(islice(rest, 30)) == list(islice(original, 30)), count


def test_initial_value_of_accumulate():
    for count in range(4):
        copy, original = ours.Accumulate([1, 2], initial=5), itertools.accumulate([1, 2], initial=5)
        assert taken(copy, count) == taken(original, count)
        assert list(ours.Accumulate.left(**copy.__dict__)) == list(original)


def test_a_group_ends_when_the_next_begins():
    for make in (ours.GroupBy, itertools.groupby):
        groups = make("aabb")
        _, first = groups.__next__()
        assert next(first) == "a"
        _, second = groups.__next__()
        assert taken(first, 9) == []
        assert taken(second, 9) == ["b", "b"]


def test_branches_of_tee():
    a, b = ours.tee(iter(range(4)))
    assert [next(a), next(a), next(b)] == [0, 1, 0]
    assert taken(a, 9) == [2, 3] and taken(b, 9) == [1, 2, 3]


def test_heaps_and_bisection():
    rng = random.Random(0)
    for _ in range(50):
        items = [rng.randrange(10) for _ in range(rng.randrange(12))]
        a, b = list(items), list(items)
        heaps.heapify(a)
        heapq.heapify(b)
        assert a == b
        for n in range(4):
            heaps.heappush(a, n)
            heapq.heappush(b, n)
            assert heaps.heappushpop(a, 5 - n) == heapq.heappushpop(b, 5 - n)
            assert heaps.heapreplace(a, n * 2) == heapq.heapreplace(b, n * 2)
            assert heaps.heappop(a) == heapq.heappop(b) and a == b
        assert heaps.nlargest(3, items) == heapq.nlargest(3, items)
        assert heaps.nsmallest(3, items, key=odd) == heapq.nsmallest(3, items, key=odd)
        items.sort()
        for x in range(-1, 11):
            assert heaps.bisect_left(items, x) == bisect.bisect_left(items, x)
            assert heaps.bisect_right(items, x) == bisect.bisect_right(items, x)
    order = functools.cmp_to_key(lambda a, b: b - a), heaps.cmp_to_key(lambda a, b: b - a)
    assert sorted(A, key=order[0]) == sorted(A, key=order[1])
