"""Iterators and generators made before the call and used in it: the same items, and the same is left, as in plain Python."""

import itertools

import pytest
import torch

from tests.capture.capturing import jitted

X = torch.ones(3)


def generator(log):
    try:
        for i in range(4):
            log.append(i)
            yield i
    finally:
        log.append("end")


MAKERS = {
    "generator": generator,
    "zip": lambda log: map(sum, zip([0, 1, 2, 3], [0, 1, 2, 3], strict=True)),
    "genexpr": lambda log: (i for i, _ in enumerate("abcd")),
    "map": lambda log: map(lambda i: log.append(i) or i, [0, 1, 2, 3]),
    "enumerate": lambda log: map(lambda pair: pair[0], enumerate("abcd")),
    "filter": lambda log: filter(None, [0, 1, 2, 3, 4]),
    "islice": lambda log: itertools.islice(itertools.count(), 4),
    "chain": lambda log: itertools.chain([0, 1], [2, 3]),
    "list": lambda log: iter([0, 1, 2, 3]),
}


def all_of_it(x, it):
    for a in it:
        x = x + a
    return x * 2


def two_of_it(x, it):
    return x + next(it), next(it)


def until(x, it):
    for a in it:
        x = x + a
        if a == 1:
            break
    return x


def in_step_with_a_list(x, it):
    return [x + a * b for a, b in zip(it, [1, 2], strict=False)]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("use", [all_of_it, two_of_it, until, in_step_with_a_list])
def test_given_iterator(use, make):
    target, _ = jitted(use)
    for _ in range(3):
        seen = []
        for side in (use, target):
            log = []
            given = make(log)
            seen.append(
                (
                    torch.utils._pytree.tree_map_only(
                        torch.Tensor, torch.Tensor.tolist, side(X, given)
                    ),
                    list(given),
                    log,
                )
            )
        assert seen[0] == seen[1]
