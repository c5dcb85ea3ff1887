"""functools.lru_cache and cache: results that are tensors, containers and objects.

PYTEST_DONT_REWRITE
"""

import functools
from types import SimpleNamespace

import torch

from tests.programs.program import X, program


@functools.lru_cache(None)
def positions(n):
    return torch.arange(n).float()


@functools.lru_cache
def tables(n):
    return torch.arange(n).float(), {"ones": torch.ones(n)}


@functools.lru_cache(maxsize=8)
def numbers(n):
    return [1, 2, n]


@functools.cache
def settings(n):
    return SimpleNamespace(size=n)


@program()
def tensor(x):
    return x + positions(4), positions(4) is positions(4), positions(4)


@program()
def tensors_inside(x):
    row, named = tables(x.shape[1])
    return x + row + named["ones"]


@program(args=lambda: (X.clone(),))
def after_some_ops(x):
    y = x * 2
    return y + positions(4)


def clear():
    positions.cache_clear()
    tables.cache_clear()


@program(graphs=2, before=clear)
def cleared_between_calls(x):
    return x + positions(4) + tables(4)[0]


@program(state=lambda: numbers(4))
def items(x):
    return x + numbers(4)[2], len(numbers(4))


LENGTHS = [0]


def grow():
    LENGTHS[0] += 1
    numbers(7)[:] = range(LENGTHS[0] // 3 + 1)


@program(graphs=2, before=grow)
def list_that_changes(x):
    return x + sum(numbers(7))


@program(state=lambda: numbers(9), before=lambda: numbers(9).__setitem__(slice(None), [1]))
def list_that_is_written(x):
    numbers(9).append(3)
    return x + len(numbers(9))


@program(state=lambda: positions(3), before=lambda: positions(3).zero_())
def tensor_that_is_written(x):
    positions(3).add_(1)
    return x[:, :3] + positions(3)


@program()
def attributes(x):
    return x * settings(3).size


@functools.lru_cache(None)
def drawn(n):
    return torch.rand(n)


@program(graphs=2, breaks="cold_cache", before=drawn.cache_clear)
def random_numbers_before_a_cold_call(x):
    y = x + torch.rand(4)
    return y + drawn(4)


WEIGHT = torch.ones(4)


@functools.lru_cache(None)
def doubled_weight():
    return WEIGHT * 2


def reset():
    WEIGHT.fill_(1)
    doubled_weight.cache_clear()


@program(graphs=2, breaks="cold_cache", before=reset)
def write_before_a_cold_call(x):
    WEIGHT.add_(1)
    return x + doubled_weight()


@program(calls=[(X, 3), (X, 4), (X, 3)], graphs=2)
def other_keys(x, n):
    return x[:, :3] * positions(n).sum()
