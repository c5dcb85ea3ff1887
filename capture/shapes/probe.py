"""Infers results of an op that has no rule, for symbolic sizes: its meta kernel runs for several sets of
numbers, and a formula that fits all answers is used.

Each dimension of a result is a constant or one of a few expressions of the arguments' sizes. The order of the
dimensions in memory is the same for all sizes. The sets of numbers contain sizes of 1, and each size has
another number in each set. If no formula fits the answers, if different formulas fit, or if the kernel
refuses a set, the sizes are specialized.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from frameloom.capture.tensors.sized import SizedMeta, dense_strides, empty_strided
from frameloom.errors import let_mistakes_through
from frameloom.ir.symbolic.atoms import atoms_of, evaluated
from frameloom.ir.symbolic.compare import surely_positive
from frameloom.ir.symbolic.expr import Int, Size, Symbol

PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
LARGE = 1000  # larger than bounds in programs
BESIDE_BOUNDS = (1, 2, 3, 60, LARGE)
MOST = 6  # maximum number of symbols


def fit_by_probing(func: Any, args: Any, kwargs: Any, infer: Callable[..., Any]) -> Any:
    """Returns the results of `func`; None if probing cannot find them."""
    returns = func._schema.returns
    if func._schema.is_mutable or any(r.alias_info is not None for r in returns):
        return None
    numbers = list(dict.fromkeys(_sizes_in((args, kwargs))))
    symbols = symbols_in((args, kwargs), MOST)
    if not symbols:
        return None
    try:
        trials = [(at, _answer(func, args, kwargs, infer, at)) for at in _assignments(symbols)]
    except Exception as error:  # the kernel may raise anything for such sizes
        let_mistakes_through(error)
        return None
    first_answer = trials[0][1]
    if any(len(answer) != len(first_answer) for _, answer in trials) or not first_answer:
        return None
    candidates = _candidates(numbers)
    results = []
    for k in range(len(first_answer)):
        made = _fitting([(at, answer[k]) for at, answer in trials], candidates, symbols)
        if made is None:
            return None
        results.append(made)
    for s in symbols:
        size = s.shape_env.make({(s,): 1})
        if surely_positive(size) or _fits_nothing(s, func, args, kwargs, infer, results, symbols):
            continue
        if not size > 0:
            return None
    return results[0] if len(returns) == 1 and _is_one(returns[0]) else tuple(results)


def _fits_nothing(
    symbol: Symbol, func: Any, args: Any, kwargs: Any, infer: Callable[..., Any], results: list[torch.Tensor], symbols: list[Symbol]
) -> bool:  # fmt: skip
    """Whether the results equal those of the kernel if this size is 0."""
    values = {s: 0 if s is symbol else n for s, n in zip(symbols, PRIMES, strict=False)}
    try:
        answer = _answer(func, args, kwargs, infer, values.__getitem__)
    except Exception:  # as above
        return False
    return all(
        [evaluated(n, values.__getitem__) for n in made.shape] == list(t.shape)
        for made, t in zip(results, answer, strict=True)
    )


def _is_one(returned: Any) -> bool:
    return isinstance(returned.type, torch.TensorType)


def _sizes_in(value: Any) -> Iterator[Size]:
    for a in pytree.tree_leaves(value):
        for n in (*a.shape, *a.stride()) if isinstance(a, SizedMeta) else (a,):
            if isinstance(n, Size):
                yield n


def symbols_in(value: Any, most: int) -> list[Symbol] | None:
    """Returns the symbols in the sizes of these arguments; None if they cannot be tried: there are more than
    `most`, or ints taken out of tensors, which may be negative."""
    symbols = sorted({s for n in _sizes_in(value) for s in atoms_of(n)}, key=lambda s: s.name)
    return None if len(symbols) > most or any(map(_may_be_negative, symbols)) else symbols


def _may_be_negative(symbol: Symbol) -> bool:
    env = symbol.shape_env
    return symbol.unbacked and env.range_of(env.make({(symbol,): 1}))[0] < 0


def with_numbers(value: Any, at: Callable[[Int], int]) -> Any:
    """Returns the arguments of an op with numbers in place of sizes."""
    if isinstance(value, SizedMeta):
        shape, strides = ([at(n) for n in some] for some in (value.shape, value.stride()))
        return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return type(value)(with_numbers(a, at) for a in value)
    if isinstance(value, dict):
        return {name: with_numbers(a, at) for name, a in value.items()}
    return at(value) if isinstance(value, Size) else value


def _assignments(symbols: Sequence[Symbol]) -> list[Callable[[Symbol], int]]:
    """Returns values of the symbols: those of the captured call, different numbers, and some ones."""
    count = len(symbols)
    values = [[s.hint for s in symbols]]
    values += [[PRIMES[(5 * j + 3 * k) % len(PRIMES)] for k in range(count)] for j in range(4)]
    values += [[1 if k == j else n for k, n in enumerate(values[1])] for j in range(count)]
    values += [[1] * count, [LARGE + n for n in values[1]]]
    return [dict(zip(symbols, v, strict=True)).__getitem__ for v in values]


def _answer(
    func: Any, args: Any, kwargs: Any, infer: Callable[..., Any], at: Callable[[Symbol], int]
) -> list[torch.Tensor]:
    args, kwargs = with_numbers((args, kwargs), lambda n: evaluated(n, at))
    results = infer(func, args, kwargs)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    if any(type(t) is not torch.Tensor for t in results):
        raise TypeError
    return results


def _candidates(numbers: Sequence[Size]) -> list[Int]:
    pairs = list(itertools.combinations_with_replacement(numbers, 2))
    expressions = (*numbers, *(n // 2 + 1 for n in numbers), *(n + m for n, m in pairs), *(n * m for n, m in pairs))  # fmt: skip
    return [*dict.fromkeys(expressions)]  # a stride may be a product of sizes


def _fitting(
    trials: Sequence[tuple[Callable[[Symbol], int], torch.Tensor]],
    candidates: Sequence[Int],
    symbols: Sequence[Symbol],
) -> torch.Tensor | None:
    first = trials[0][1]
    if any(t.dim() != first.dim() or t.dtype != first.dtype for _, t in trials):
        return None
    shape: list[Int] = []
    for d in range(first.dim()):
        fits = [
            n
            for n in (first.shape[d], *candidates)
            if all(evaluated(n, at) == t.shape[d] for at, t in trials)
        ]
        if not fits or not _are_one(fits, symbols):
            return None
        shape.append(fits[0])
    for order in dict.fromkeys(_order(t) for _, t in trials):
        if all(t.stride() == dense_strides(t.shape, order) for _, t in trials):
            return empty_strided(shape, dense_strides(shape, order), first.dtype)
    return None


def _are_one(fits: Sequence[Int], symbols: Sequence[Symbol]) -> bool:
    """Whether all expressions have the same value for all sizes. Expressions with a bound, as `x[:2]` has,
    may be equal in all trials without that."""
    points: Iterable[tuple[int, ...]] = itertools.product(BESIDE_BOUNDS, repeat=len(symbols))
    ways = [dict(zip(symbols, p, strict=True)).__getitem__ for p in points] if fits[1:] else ()
    return all(len({evaluated(n, at) for n in fits}) == 1 for at in ways)


def _order(t: torch.Tensor) -> tuple[int, ...]:
    """Returns the dimensions from the innermost to the outermost."""
    return tuple(sorted(range(t.dim()), key=lambda d: (t.stride(d), t.shape[d], -d)))
