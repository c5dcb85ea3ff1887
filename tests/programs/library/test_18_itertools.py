"""itertools: every iterator, used whole, in part, and across a break.

PYTEST_DONT_REWRITE
"""

import itertools
from itertools import (
    accumulate,
    chain,
    combinations,
    count,
    cycle,
    groupby,
    islice,
    pairwise,
    permutations,
    product,
    repeat,
    starmap,
    takewhile,
    tee,
    zip_longest,
)

import torch

from tests.programs.program import X, program


@program()
def endless_ones(x):
    c, y, r = count(5, 2), cycle("ab"), repeat(3, 2)
    return (
        x + next(c) + next(c),
        [next(y) for _ in range(5)],
        list(r),
        list(islice(count(), 3)),
        list(zip(range(2), repeat("k"))),
    )


@program()
def chains(x):
    return (
        list(chain([x], (x + 1,), range(2))),
        list(chain.from_iterable([[1], [2, 3]])),
        sum(chain([1], [2])),
        list(chain()),
    )


@program()
def slices_of_iterators(x):
    it = iter(range(10))
    a, b = list(islice(it, 2)), list(islice(it, 1, 5, 2))
    return (
        x + a[0],
        a,
        b,
        next(it),
        list(islice("abcdef", 2, None, 3)),
        list(islice(it, 0)),
        list(it),
    )


@program()
def accumulated(x):
    return (
        list(accumulate([x, x, x])),
        list(accumulate([1, 2, 3], lambda a, b: a * b)),
        list(accumulate([1, 2], initial=10)),
        list(accumulate([])),
    )


@program()
def filters(x):
    odd = lambda n: n % 2
    return (
        x + 1, list(itertools.compress("abcd", [1, 0, 1])), list(itertools.filterfalse(odd, range(5))), list(takewhile(odd, [1, 3, 4, 5])),
        list(itertools.dropwhile(odd, [1, 3, 4, 5])), list(starmap(pow, [(2, 3), (3, 2)])), list(itertools.filterfalse(None, [0, 1])),
    )  # fmt: skip


@program()
def combined_positions(x):
    return (
        x + 1, list(product("ab", [1, 2])), list(product([0, 1], repeat=2)), list(permutations("abc", 2)), list(combinations(range(4), 2)),
        list(itertools.combinations_with_replacement("ab", 2)), len(list(permutations(range(3)))), list(combinations("a", 2)), list(product()),
    )  # fmt: skip


@program()
def products_over_tensors(x):
    return [a * b for a, b in product([x, x + 1], [1, 2])], [
        a - b for a, b in combinations([x, x * 2, x * 3], 2)
    ]


@program()
def pairs_and_longest(x):
    return (
        x + 1,
        list(pairwise([1, 2, 3])),
        list(zip_longest("ab", [1], fillvalue="-")),
        [b - a for a, b in pairwise([x, x * 2, x * 4])],
        list(pairwise([])),
    )


@program()
def groups(x):
    out = {k: list(g) for k, g in groupby("aabbb")}
    words = [(len(w), w) for w in ("a", "b", "cc")]
    return (
        x + len(out),
        out,
        [(k, [w for _, w in g]) for k, g in groupby(words, key=lambda p: p[0])],
        [k for k, _ in groupby([1, 1, 2])],
    )


@program()
def tees(x):
    a, b = tee(range(3))
    first = next(a)
    return x + first, list(b), list(a), [list(t) for t in tee("ab", 3)]


@program(graphs=2, breaks="print")
def chain_across_a_break(x):
    it = chain([1, 2], [3], [4])
    y = x + next(it)
    print("between")
    return y * 2, it


@program(graphs=2, breaks="print")
def many_iterators_across_a_break(x):
    its = [
        islice(count(1), 1, 6, 2),
        accumulate([1, 2, 3]),
        cycle([1, 2, 3]),
        takewhile(lambda n: n < 3, [1, 2, 3]),
        pairwise("abcd"),
        zip_longest("abc", "d"),
        product("ab", repeat=2),
        starmap(max, [(1, 2), (3, 4)]),
    ]
    firsts = [next(it) for it in its]
    y = x + len(firsts)
    print("between")
    return y * 2, firsts, its


@program(graphs=2, breaks="print")
def enumerate_zip_map_across_a_break(x):
    e, z, m, r = (
        enumerate("abc", 5),
        zip([1, 2], [3, 4]),
        map(lambda n: n * 2, [1, 2]),
        reversed([1, 2, 3]),
    )
    y = x + next(e)[0] + next(z)[0] + next(m) + next(r)
    print("between")
    return y + 1, e, z, m, r


@program()
def iterators_returned_unfinished(x):
    c = chain([1], [2])
    next(c)
    return (
        x + 1,
        c,
        islice(range(9), 2, 5),
        enumerate("ab"),
        zip([1], [2]),
        map(str, [1]),
        count(3),
        repeat(1, 2),
    )


@program()
def batches_of_rows(x):
    rows = iter(x)
    out = []
    while batch := list(islice(rows, 2)):
        out.append(torch.stack(batch).sum())
    return out


@program()
def round_robin(x):
    def robin(*iterables):
        nexts = cycle([iter(i).__next__ for i in iterables])
        out = []
        for n in nexts:
            try:
                out.append(n())
            except StopIteration:
                break
        return out

    return x + 1, robin("ab", "cd")


class ReadsItself:
    """An iterator that asks the branch it feeds."""

    def __init__(self):
        self.first, self.branch = True, None

    def __iter__(self):
        return self

    def __next__(self):
        if self.first:
            self.first = False
            return next(self.branch)
        return 1


@program()
def tee_reentered(x):
    source = ReadsItself()
    a, b = tee(source)
    source.branch = b
    try:
        next(a)
    except RuntimeError as error:
        return x + 1, str(error), next(a), next(b)


@program(breaks="opaque_iterable opaque_iterable")
def branches_of_tee_that_stay(x):
    y = x + 1
    a, b = tee([1, 2, 3])
    next(a)
    return y, a, b, type(a).__name__


class EqualAndAsking:
    def __init__(self, value):
        self.group = None

    def __eq__(self, other):
        if self.group is not None:
            group, self.group = self.group, None
            next(group, None)
        return True


@program()
def groupby_reentered(x):
    keys = [EqualAndAsking(n) for n in range(4)]
    group = next(groupby(range(4), keys.__getitem__))[1]
    keys[0].group = group
    return x + 1, [next(group, None) for _ in range(3)]


@program(breaks="opaque_iterable opaque_iterable opaque_iterable")
def group_that_stays(x):
    y = x + 1
    group = next(groupby([1, 1, 2]))[1]
    return y, group, next(group)


class NotItsOwn:
    """An iterator whose own `__iter__` gives something else."""

    def __init__(self):
        self.left = [3, 2, 1]

    def __iter__(self):
        return iter("never asked")

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop()


class Gives:
    def __init__(self, what):
        self.what = what

    def __iter__(self):
        return self.what


@program()
def iterator_is_taken_as_it_is(x):
    return x + 1, list(Gives(NotItsOwn()))


@program()
def iter_gives_no_iterator(x):
    texts = []
    for what in ([1], Gives(1), 3):
        try:
            zip(Gives(what))
        except TypeError as error:
            texts.append(str(error))
    return x + 1, texts
