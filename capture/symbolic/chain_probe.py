"""Checks which layouts the program sees for sizes of 1 or 0, by repeating all its calls in PyTorch with small
tensors.

The layout of a call's result may depend on the layouts of tensors many calls before, and shows in its views
and gradients. So the recorded chain of calls is tried as a whole: forward, and backward if there are
gradients. In: the calls, with their result Fakes. Out: whether, for some sizes, the visible tensors have the
shapes, strides and shared memory of the recorded formulas. If the chain does not reproduce the recording even
for large sizes (a function of the program's own among the calls), nothing is known. Calls with unbacked sizes
get data that gives these sizes (`_data`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree

from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.symbolic.layout_probe import (
    ATTENTION,
    DROPOUT,
    SMALL,
    RecordedCall,
    Trial,
    can_be_tried,
)
from frameloom.capture.tensors.fake import Fake
from frameloom.errors import let_mistakes_through
from frameloom.ir.symbolic.atoms import atoms_of, evaluated, is_given_stride, unbacked_in
from frameloom.ir.symbolic.expr import Size, Symbol
from frameloom.ir.symbolic.shape_env import ShapeEnv

Values = dict[Symbol, int]
TRIALS = 40  # most trials for one size
FEW = 4  # up to this many sizes, all combinations are tried


@dataclass(frozen=True, eq=False)
class Backward:
    """`gradients` of `leaves`, computed from `seeds`, the gradients of `roots`."""

    roots: Sequence[Fake]
    seeds: Sequence[Fake]
    leaves: Sequence[Fake]
    gradients: Sequence[Fake]


class Chain:
    """A chain of recorded calls. `calls`: those that lead to `outputs` (`leading_to`)."""

    def __init__(
        self,
        shape_env: ShapeEnv,
        calls: Sequence[RecordedCall],
        outputs: Sequence[Fake],
        back: Backward | None,
    ) -> None:
        self.shape_env = shape_env
        self.outputs = outputs
        self.back = back
        self.calls = calls
        self._verdicts: dict[tuple[int, ...], bool | None] = {}
        sizes = {s: shape_env.resolved(shape_env.make({(s,): 1})) for s in shape_env.symbols}
        self._sizes = sizes
        self._free = [s for s, n in sizes.items() if isinstance(n, Size) and [*atoms_of(n)] == [s]]

    def is_as_recorded(self) -> bool:
        """Whether the chain reproduces the recording for the sizes of the captured call."""
        usual = self._usual()
        at = self._at(usual)
        if self.back is not None and any(
            _is_large(f, at) for call in self.calls for f in (*call.tensors, *call.results)
        ):
            return False  # a large call is not repeated, so no gradient would pass through it
        return self._holds(usual) and self._matches_recording(usual) is True

    def matches_recording(self, size: Size, number: int, alone: bool) -> bool | None:
        """Whether all visible tensors are as recorded where `size` is `number`, and, unless `alone`, where
        others are 1; None where that cannot be tried."""
        known = self.shape_env.resolved(size)
        if not isinstance(known, Size):
            return known != number
        possible = filter(self._holds, self._assignments(known, number, alone))
        outcomes = {
            self._matches_recording(values) for values in itertools.islice(possible, TRIALS)
        }
        return False if False in outcomes else True if True in outcomes else None

    # --- sizes

    def _usual(self) -> Values:
        values = {s: max(s.hint, 1) for s in self._free}
        for s in self._free:
            if s.unbacked:  # its hint is not a value of the captured call
                values[s] = int(min(values[s], self.shape_env.upper_bound_of(s, self._at(values))))
        if self._holds(values):
            return values
        # The code may be for negative numbers, or for 0.
        return {s: n if s.unbacked else s.hint for s, n in values.items()}

    def _is_possible(self, values: Values) -> bool:
        at = self._at(values)
        ranges = (
            (s, self.shape_env.range_of(self.shape_env.make({(s,): 1})))
            for s in self.shape_env.symbols
        )
        return self.shape_env.is_possible(at) and all(
            low <= at(s) <= high for s, (low, high) in ranges
        )

    def _patterns(self, usual: Values) -> Iterator[Values]:
        """Yields values for all symbols, none of them special: layouts depend on which sizes are larger than
        others."""
        yield usual
        growing = sorted(self._free, key=lambda s: -usual[s])
        yield {s: 3 + 2 * k for k, s in enumerate(growing)}

    def _assignments(self, size: Size, number: int, alone: bool) -> Iterator[Values]:
        own = [a for a in dict.fromkeys(atoms_of(size)) if isinstance(a, Symbol)]
        others = [s for s in self._free if s not in own]
        sizes = [s for s in others if not is_given_stride(s)]
        usual = self._usual()
        at = self._at(usual)
        bases = [*self._patterns(usual)] if alone else [usual]
        fitting = [
            dict(zip(own, numbers, strict=True))
            for numbers in itertools.product(*(_candidates(s, size, number, at) for s in own[:3]))
            if len(own) < 4
            and evaluated(size, dict(zip(own, numbers, strict=True)).__getitem__) == number
        ]
        sets: list[tuple[Symbol, ...]] = [()]
        if not alone:
            # Where only some sizes are 1, the others keep their values.
            counts = range(1, 1 + (len(sizes) if len(sizes) <= FEW else 1))
            some = itertools.chain(*(itertools.combinations(sizes, k) for k in counts))
            strides = [(s,) for s in others if s not in sizes]
            sets = [*some, *strides, tuple(sizes), tuple(others)]
        for ones in dict.fromkeys(sets):
            for base in bases:
                for chosen in fitting:
                    values = {**base, **dict.fromkeys(ones, 1), **chosen}
                    yield values
                    if len(sizes) < len(others):
                        yield {**values, **self._plain_strides(values), **chosen}

    def _plain_strides(self, values: Values) -> Values:
        """Returns the strides of fresh tensors with these sizes, for the symbolic strides; but not in
        dimensions of size 1, where strides do not matter."""
        at = self._at(values)
        strides = {}
        for s in filter(is_given_stride, self._free):
            source: Any = s.source
            shape = [evaluated(n, at) for n in source.pattern.placeholder.meta["val"].shape]
            if shape[source.dim] > 1:
                strides[s] = math.prod(max(n, 1) for n in shape[source.dim + 1 :])
        return strides

    def _holds(self, values: Values) -> bool:
        """Whether a call with these sizes reaches the code."""
        at, unbacked = self._at(values), self.shape_env.unbacked_conditions()
        if not (self._is_possible(values) and self.shape_env.hold(at)):
            return False
        return all(evaluated(n, at) >= 0 for n in unbacked)

    def _at(self, values: Values) -> Callable[[Symbol], int]:
        full: Values = dict(values)
        for s, n in self._sizes.items():
            if s not in full:
                full[s] = evaluated(n, values.__getitem__)
        return full.__getitem__

    # --- calls

    def _matches_recording(self, values: Values) -> bool | None:
        """Returns None where PyTorch refuses such sizes."""
        key = tuple(values[s] for s in self._free)
        if key not in self._verdicts:
            try:
                self._verdicts[key] = _Run(self, self._at(values)).matches_recording()
            except Exception as error:
                let_mistakes_through(error)
                self._verdicts[key] = None
        return self._verdicts[key]


def _candidates(
    symbol: Symbol, size: Size, number: int, usual: Callable[[Symbol], int]
) -> Collection[int]:
    """Returns values for a symbol of `size`, so that `size` may become `number`."""
    if unbacked_in(size):
        return range(5)
    own = usual(symbol)
    if own > 0:
        return (1, 2, 3, 4)
    # Values below 1 count up or down from the usual value.
    more = number - evaluated(size, usual)
    return (own + more, own - more)


class _Run(Trial):
    """One run of the calls with these values of symbols."""

    def __init__(self, chain: Chain, at: Callable[[Symbol], int]) -> None:
        super().__init__(at)
        self.chain = chain
        self.sources: list[Fake] = []

    def matches_recording(self) -> bool:
        # Prevents that tensors are made or drawn on a default device set by the program.
        no_modes = torch._C.DisableTorchFunction()
        with no_modes, torch._C._DisableTorchDispatch(), warnings_here("ignore"):
            if not all(map(self._replay, self.chain.calls)):
                return False
            outputs = [self.tensor(f) for f in self.chain.outputs]
            if not all(map(self.has_layout, outputs, self.chain.outputs)):
                return False
            return self._has_recorded_aliasing() and self._has_recorded_gradients()

    def _replay(self, call: RecordedCall) -> bool:
        """Repeats one call. Returns whether its results have the recorded dtypes and shapes, and written
        tensors share memory as recorded."""
        fakes = call.tensors
        large = any(_is_large(f, self.at) for f in (*fakes, *call.results))
        if large:
            return True  # taken from the formulas
        if not can_be_tried(call.fn):
            return all(self.has_layout(self.tensor(f), f) for f in fakes)
        if any(f.device.type != "cpu" for f in fakes):
            if call.fn is ATTENTION:
                return True  # each device has its own kernel
            if call.fn in DROPOUT and all(f.memory is not fakes[0].memory for f in call.results):
                like = torch.empty_like(self.tensor(fakes[0]))  # the layout on a GPU
                return all(self.has_layout(like, f) for f in call.results)
        tensors = self._results(call)
        for t, f in zip(tensors, call.results, strict=True):
            if t.dtype is not f.dtype or tuple(t.shape) != self.numbers(f.shape):
                return False
            self.made[id(f)] = t
            # PyTorch's own function may have made it as a view of a tensor that is not visible otherwise, and
            # that gets a gradient.
            if (base := t._base) is not None:
                self.made.setdefault(id(f.memory.root), base)
            for source in fakes:
                written = f.memory.version or source.memory.version
                if written and not self.shares_as_recorded(t, f, source):
                    return False
        return True

    def _results(self, call: RecordedCall) -> list[torch.Tensor]:
        args, kwargs = map(self.plain, call.given)
        shapes = [self.numbers(f.shape) for f in call.results]
        for numbers in (None, *(_data(shapes) if self.chain.shape_env.has_unbacked else ())):
            for f in _deciding(call) if numbers is not None else ():
                t = self.tensor(f).data
                t.copy_(numbers(t))
            with torch.set_grad_enabled(call.grad):
                result = call.fn(*args, **kwargs)
            tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
            if not self.chain.shape_env.has_unbacked or [tuple(t.shape) for t in tensors] == shapes:
                return tensors
        raise ValueError("other data decides")

    def tensor(self, f: Fake) -> torch.Tensor:
        if id(f) not in self.made:
            self.sources.append(f)
            if f.requires_grad and not f.memory.version:
                super().tensor(f).requires_grad_()  # some functions query it
        return super().tensor(f)

    # --- what is seen

    def _has_recorded_aliasing(self) -> bool:
        memory: dict[int, Any] = {}
        places: dict[int, set[int]] = {}
        for f in self.sources:
            if f.memory.input is not None:
                place = storage_of(self.made[id(f)])
                memory[place] = f.memory
                places.setdefault(id(f.memory), set()).add(place)
        for f in self.chain.outputs:
            place = storage_of(self.tensor(f))
            if memory.setdefault(place, f.memory) is not f.memory:
                return False
            if place not in places.setdefault(id(f.memory), {place}):
                return False
        return True

    def _has_recorded_gradients(self) -> bool:
        back = self.chain.back
        if back is None:
            return True
        roots, leaves = ([*map(self.tensor, some)] for some in (back.roots, back.leaves))
        if any(
            tuple(t.shape) != self.numbers(f.shape) for t, f in zip(roots, back.roots, strict=True)
        ):
            return False  # another op made it
        seeds = [*map(self.fresh, back.seeds)]
        with torch.autograd.set_multithreading_enabled(False):
            gradients = torch.autograd.grad(roots, leaves, seeds, allow_unused=True)
        for t, f in zip(gradients, back.gradients, strict=True):
            if t is None or not self.has_layout(t, f):
                return False
            if not self._aliases_recorded_seeds(t, f, seeds):
                return False
        return True

    def _aliases_recorded_seeds(
        self, t: torch.Tensor, f: Fake, seeds: Sequence[torch.Tensor]
    ) -> bool:
        """Whether it is a view of the same seed as recorded: then it follows other layouts of that
        gradient."""
        assert self.chain.back is not None
        wanted = [f.memory is seed.memory for seed in self.chain.back.seeds]
        return wanted == [storage_of(t) == storage_of(seed) for seed in seeds]


def _deciding(call: RecordedCall) -> list[Fake]:
    """Returns the arguments whose data decides the sizes: masks, if there are any."""
    masks = [f for f in call.tensors if f.dtype in (torch.bool, torch.uint8)]
    return masks or [*call.tensors]


def _data(
    shapes: Iterable[tuple[int, ...]],
) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Yields functions that fill a tensor with data for which a function may return results of these
    shapes."""
    for n in dict.fromkeys(n for shape in shapes for n in shape):
        yield partial(_places, n)
        yield partial(_total, n)
        yield partial(_total, n - 1)
        for dim in (None, 0, 1, 2):
            yield partial(_different, n, dim)


def _places(n: int, t: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in which `n` elements are not 0."""
    return (torch.arange(t.numel()) < n).view(t.shape)


def _total(n: int, t: torch.Tensor) -> torch.Tensor:
    """Returns a tensor whose sum, and whose largest element, is `n`."""
    return _places(1, t) * n


def _different(n: int, dim: int | None, t: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with `n` different elements, or with `n` different parts along a dimension."""
    if dim is None or dim >= t.dim():
        return torch.arange(t.numel()).clamp(max=n - 1).view(t.shape)
    shape = [size if d == dim else 1 for d, size in enumerate(t.shape)]
    return torch.arange(t.shape[dim]).clamp(max=n - 1).view(shape).expand(t.shape)


def _is_large(f: Fake, at: Callable[[Symbol], int]) -> bool:
    return math.prod(evaluated(n, at) for n in f.shape) > SMALL


def storage_of(t: torch.Tensor) -> int:
    """Returns the identity of the tensor's storage."""
    return t.untyped_storage()._cdata


def leading_to(
    calls: Sequence[RecordedCall], ends: Iterable[Fake], is_fresh: Callable[[Fake], bool]
) -> list[RecordedCall]:
    """Returns the calls on whose result layouts or writes the ends depend. `is_fresh`: whether the layout of
    a result does not depend on its operands."""
    wanted = {id(f.memory) for f in ends}
    relevant = []
    for call in reversed(calls):
        touched = [*call.results, *(f for f in call.tensors if f.memory.version)]
        if not any(id(f.memory) in wanted or f.memory.version for f in touched):
            continue
        if touched and not any(f.memory.version for f in touched) and all(map(is_fresh, touched)):
            continue
        wanted.update(id(f.memory) for f in (*call.tensors, *call.results))
        relevant.append(call)
    return relevant[::-1]
