"""Checks whether a call's results have the recorded layouts for sizes of 1, too, by calls of PyTorch with
small tensors.

PyTorch's own kernels decide it (meta kernels differ where dimensions of size 1 have odd strides). Those of
the CPU use the same layouts as a GPU's, except for attention and dropout. In: a call as it was recorded, with
its result Fakes. Out: whether strides and shared memory are as in the recorded formulas wherever a size is
1. Layouts depend on which sizes are 1 and on which are larger than others, so a few values of each symbol are
enough."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MethodWrapperType
from typing import Any

import torch
import torch.utils._pytree as pytree

from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.numbers.symbolic import SYMBOLS
from frameloom.errors import let_mistakes_through
from frameloom.ir.symbolic.atoms import atoms_of, evaluated
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int, Size, Symbol
from frameloom.ir.symbolic.symint import size_of

TRIALS = 128  # most trials of one call
SMALL = 1 << 14  # most elements of a tensor
ATTENTION = torch.nn.functional.scaled_dot_product_attention
DROPOUT = frozenset({torch.nn.functional.dropout, torch.dropout, torch.native_dropout})
IN_C = (BuiltinFunctionType, type(torch.Tensor.add), type(torch.Tensor.__add__))


def can_be_tried(fn: Callable[..., Any]) -> bool:
    """Whether the function belongs to PyTorch: an op of the program may do anything."""
    if isinstance(fn, FunctionType):
        return (fn.__module__ or "").startswith("torch.")
    if isinstance(fn, MethodWrapperType):  # reads an attribute, such as `x.mT`
        return isinstance(fn.__self__, GetSetDescriptorType)
    return isinstance(fn, IN_C)


def has_recorded_layout(
    size: Size,
    others: Iterable[Size],
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    results: Sequence[Fake],
    sharing: bool,
    draws: bool,
) -> bool:
    """Whether the results of `fn(*args, **kwargs)` are as recorded wherever `size` is 1. An error of PyTorch
    is ignored where one of `others` is 1, which may be its reason. `sharing`: also compares which tensors
    share memory. `draws`: whether the call draws random numbers."""
    known = size.shape_env.resolved(size)
    if not isinstance(known, Size):
        return known != 1
    size, others = known, [size.shape_env.resolved(n) for n in others]
    given = [a for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, Fake)]
    numbers = [n for f in (*given, *results) for n in (*f.shape, *f.stride()) if isinstance(n, Size)]  # fmt: skip
    symbols = sorted(
        {s for n in (*numbers, size, *others) for s in atoms_of(n)}, key=lambda s: s.name
    )
    if not given or any(not isinstance(s, Symbol) or s.unbacked for s in symbols):
        return False
    on_cpu = all(f.device.type == "cpu" for f in given)
    its_own = fn is ATTENTION or fn in DROPOUT  # each device has its own kernels
    if not can_be_tried(fn) or (its_own and not on_cpu):
        return False
    # Only then, because another thread may draw meanwhile.
    random_state = torch.get_rng_state() if draws else None
    trials = 0
    try:
        for values in _assignments(symbols):
            at = values.__getitem__
            if any(evaluated(n, at) < 1 for f in (*given, *results) for n in f.shape):
                continue
            if evaluated(size, at) != 1:
                continue
            if any(math.prod(_at(f.shape, at)) > SMALL for f in (*given, *results)):
                continue
            try:
                matches = _as_recorded(at, fn, args, kwargs, given, results, sharing)
            # this case proves nothing, unless only `size` can be the reason
            except Exception as error:
                let_mistakes_through(error)
                if any(not same(n, size) and evaluated(n, at) == 1 for n in others):
                    continue
                return False
            trials += 1
            if trials > TRIALS or not matches:
                return False
    finally:
        if random_state is not None:
            torch.set_rng_state(random_state)
    return trials > 0


def _assignments(symbols: Sequence[Symbol]) -> Iterator[dict[Symbol, int]]:
    more = (3, 4) if len(symbols) < 4 else ()
    choices = [sorted({1, 2, *more, 5 + 2 * k, max(s.hint, 1)}) for k, s in enumerate(symbols)]
    for values in itertools.product(*choices):
        yield dict(zip(symbols, values, strict=True))


def _as_recorded(
    at: Callable[[Symbol], int],
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    given: Sequence[Fake],
    results: Sequence[Fake],
    sharing: bool,
) -> bool:
    made = {id(f): _zeros(f, at) for f in given}

    def plain(a: Any) -> Any:
        if isinstance(a, Fake):
            return made[id(a)]
        if isinstance(a, torch.device):
            return torch.device("cpu")
        if isinstance(a, Size):
            return evaluated(a, at)
        if isinstance(a, SYMBOLS):
            return evaluated(size_of(a), at)
        return a

    args, kwargs = pytree.tree_map(plain, (args, kwargs))
    with torch._C._DisableTorchDispatch(), torch.no_grad(), warnings_here("ignore"):
        result = fn(*args, **kwargs)
    tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    if len(tensors) != len(results):
        return False
    for t, f in zip(tensors, results, strict=True):
        if t.dtype is not f.dtype or tuple(t.shape) != _at(f.shape, at) or t.stride() != _at(f.stride(), at):  # fmt: skip
            return False
        for source in given if sharing else ():
            shares = torch._C._is_alias_of(t, made[id(source)])  # type: ignore[attr-defined]
            if shares is not (f.memory is source.memory):
                return False
    return True


def _zeros(f: Fake, at: Callable[[Symbol], int]) -> torch.Tensor:
    shape, strides = _at(f.shape, at), _at(f.stride(), at)
    return torch.empty_strided(shape, strides, dtype=f.dtype, device="cpu").zero_()


def _at(numbers: Iterable[Int], at: Callable[[Symbol], int]) -> tuple[int, ...]:
    return tuple(evaluated(n, at) for n in numbers)
