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
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False, slots=True)
class RecordedCall:
    """A recorded call; `not_1` and `not_0`: its assumptions about symbolic sizes."""

    fn: Callable[..., Any]
    given: tuple[Any, Any]  # the arguments
    tensors: tuple[Fake, ...]  # the tensors among the arguments
    results: tuple[Fake, ...]
    grad: bool  # the gradient mode
    not_1: frozenset[Size]
    not_0: frozenset[Size]


class Trial:
    """Small tensors of zeros in place of recorded ones, for these values of the symbols."""

    def __init__(self, at: Callable[[Symbol], int]) -> None:
        self.at = at
        self.made: dict[int, torch.Tensor] = {}

    def numbers(self, numbers: Iterable[Int]) -> tuple[int, ...]:
        return tuple(evaluated(n, self.at) for n in numbers)

    def fresh(self, f: Fake) -> torch.Tensor:
        shape, strides = self.numbers(f.shape), self.numbers(f.stride())
        return torch.empty_strided(shape, strides, dtype=f.dtype, device="cpu").zero_()

    def tensor(self, f: Fake) -> torch.Tensor:
        tensor = self.made.get(id(f))
        if tensor is None:
            tensor = self.made[id(f)] = self.fresh(f)
        return tensor

    def plain(self, a: Any) -> Any:
        """Returns an argument of a call without recorded tensors and symbols."""
        if isinstance(a, Fake):
            return self.tensor(a)
        if isinstance(a, torch.device):
            return torch.device("cpu")
        if isinstance(a, Size):
            return evaluated(a, self.at)
        if isinstance(a, SYMBOLS):
            return self._number(a)
        if isinstance(a, list | tuple):
            return (list if isinstance(a, list) else tuple)(map(self.plain, a))
        if type(a) is dict:
            return {k: self.plain(v) for k, v in a.items()}
        if type(a) is slice:
            return slice(*map(self.plain, (a.start, a.stop, a.step)))
        return a

    def _number(self, a: Any) -> Any:
        """Returns the value of a number. A dynamic number of the program stays dynamic: asking PyTorch for
        its value would specialize it."""
        number = getattr(a.node, "number", None)
        size = size_of(a) if number is None else number.sized
        return number.hint if size is None else evaluated(size, self.at)  # type: ignore[union-attr]

    def has_layout(self, t: torch.Tensor, f: Fake) -> bool:
        """Whether `t` has the recorded shape and strides."""
        return tuple(t.shape) == self.numbers(f.shape) and t.stride() == self.numbers(f.stride())

    def shares_as_recorded(self, t: torch.Tensor, f: Fake, source: Fake) -> bool:
        """Whether `t`, in place of `f`, shares memory with the tensor in place of `source` if these do."""
        shares = torch._C._is_alias_of(t, self.made[id(source)])  # type: ignore[attr-defined]
        return bool(shares) is (f.memory is source.memory)


def has_recorded_layout(
    size: Size, others: Iterable[Size], call: RecordedCall, sharing: bool, draws: bool
) -> bool:
    """Whether the results of the call are as recorded wherever `size` is 1. An error of PyTorch is ignored
    where one of `others` is 1, which may be its reason. `sharing`: also compares which tensors share memory.
    `draws`: whether the call draws random numbers."""
    known = size.shape_env.resolved(size)
    if not isinstance(known, Size):
        return known != 1
    size, others = known, [size.shape_env.resolved(n) for n in others]
    fn, given, results = call.fn, call.tensors, call.results
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
            trial = Trial(values.__getitem__)
            shapes = [trial.numbers(f.shape) for f in (*given, *results)]
            if any(n < 1 for shape in shapes for n in shape) or evaluated(size, trial.at) != 1:
                continue
            if any(math.prod(shape) > SMALL for shape in shapes):
                continue
            try:
                matches = _is_as_recorded(trial, call, sharing)
            # this case proves nothing, unless only `size` can be the reason
            except Exception as error:
                let_mistakes_through(error)
                if any(not same(n, size) and evaluated(n, trial.at) == 1 for n in others):
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


def _is_as_recorded(trial: Trial, call: RecordedCall, sharing: bool) -> bool:
    args, kwargs = map(trial.plain, call.given)
    with torch._C._DisableTorchDispatch(), torch.no_grad(), warnings_here("ignore"):
        result = call.fn(*args, **kwargs)
    tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    return len(tensors) == len(call.results) and all(
        t.dtype is f.dtype
        and trial.has_layout(t, f)
        and (not sharing or all(trial.shares_as_recorded(t, f, source) for source in call.tensors))
        for t, f in zip(tensors, call.results, strict=True)
    )
