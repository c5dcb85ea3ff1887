"""Asks NumPy what a call returns, by calling it on sample arrays that are laid out like those of the program.

In: the arguments of a call, in which Fakes stand for arrays. Out: `Result`s: class, dtype, shape and strides,
and the argument whose memory it is in. None of this may depend on the elements: NumPy is asked with zeros and
with ones, and a call with different answers breaks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.arrays.ndarray import (
    PLAIN,
    Access,
    access_of,
    accessed,
    without_elements,
)
from frameloom.capture.values.const import NUMPY_DTYPES
from frameloom.errors import Break, first_line, let_mistakes_through
from frameloom.ir.symbolic.atoms import evaluated, unbacked_in
from frameloom.ir.symbolic.expr import Size, Symbol

if NUMPY_DTYPES:
    import numpy


WARNS_BIT = 31  # of an array's flags: it warns when it is written


class Number(NamedTuple):
    """Stands in an argument list for a number of NumPy that a tensor without dimensions has."""

    fake: Fake


class Accessed(NamedTuple):
    """Stands in an argument list for an array that is read backwards, or may not be written."""

    fake: Fake
    access: Access


class Result(NamedTuple):
    """What NumPy returns, or one item of it. `same`: it is that argument itself. `shares`: the argument whose
    memory it is in; read forwards, it starts `offset` elements of its own dtype behind the start of that memory.
    Strides are those of an array that is read forwards."""

    cls: Any
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    same: Fake | None
    shares: Fake | None
    offset: int
    access: Access


class Constant(NamedTuple):
    """A result that is the same in each call, whatever the elements are."""

    value: Any


# Returns the elements that an array has in every call; None if they are not the same in each.
Known = Callable[[Fake], Any]


def nothing_known(fake: Fake) -> None:
    return None


class Samples:
    """The sample arrays of one call, for these values of the symbols in sizes. Fakes that share memory have
    samples that share memory. Elements that are not known are all `element`."""

    def __init__(
        self,
        arrays: list[Any],
        element: int,
        at: Callable[[Symbol], int],
        writeable: bool,
        known: Known,
    ) -> None:
        self._at = at
        self._known = known
        self._writeable = writeable
        sizes: dict[int, int] = {}
        given = [part if isinstance(part, Accessed) else Accessed(part, PLAIN) for part in arrays]
        for fake, _ in given:
            key = id(fake.memory)
            sizes[key] = max(sizes.get(key, 1), self._end(fake) * fake.itemsize)
        self._memory = {key: numpy.zeros(size, numpy.uint8) for key, size in sizes.items()}
        self._arrays: dict[int, tuple[Fake, Any]] = {}
        for fake, access in given:
            if id(fake) not in self._arrays:
                sample = accessed(self._sample(fake, element), access)
                sample.flags.writeable = writeable and not access.readonly
                self._arrays[id(fake)] = fake, sample

    def _sample(self, fake: Fake, element: int) -> Any:
        shape, strides, offset = self._layout(fake)
        if 0 in shape:
            if any(map(unbacked_in, fake.shape)):  # as `Tensor.numpy` makes it
                strides = (0,) * len(shape)
            return without_elements(shape, dtype_of(fake), strides)
        array: Any = numpy.ndarray(
            shape, dtype_of(fake), self._memory[id(fake.memory)],
            offset * fake.itemsize, [stride * fake.itemsize for stride in strides],
        )  # fmt: skip
        elements = self._known(fake)
        array[...] = element if elements is None else elements
        return array

    def _layout(self, fake: Fake) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        shape, strides, (offset,) = (
            tuple(evaluated(n, self._at) for n in numbers)
            for numbers in (fake.shape, fake.stride(), (fake.storage_offset(),))
        )
        return shape, strides, offset

    def _end(self, fake: Fake) -> int:
        """Returns the number of elements of its memory that the tensor reaches."""
        shape, strides, offset = self._layout(fake)
        if 0 in shape:
            return offset
        steps = ((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        return offset + sum(steps) + 1

    def replaced(self, argument: Any) -> Any:
        """Returns an argument with the samples of its arrays."""
        if isinstance(argument, Fake):
            return self._arrays[id(argument)][1]
        if isinstance(argument, Accessed):
            return self._arrays[id(argument.fake)][1]
        if isinstance(argument, Number):
            return self._arrays[id(argument.fake)][1][()]
        if isinstance(argument, Size):
            return evaluated(argument, self._at)
        return map_arguments(self.replaced, argument)

    def result(self, made: Any) -> Any:
        """Describes what NumPy has returned."""
        if isinstance(made, numpy.ndarray | numpy.generic):
            return self._described(made)
        if type(made) in (tuple, list):
            return type(made)(self.result(item) for item in made)
        return Constant(made)

    def _described(self, made: Any) -> Result:
        if NUMPY_DTYPES.get(made.dtype.name) is not made.dtype or not (
            type(made) is numpy.ndarray or type(made) is made.dtype.type
        ):
            raise Break("numpy", f"an array of {made.dtype}")
        shares, offset, access = None, 0, PLAIN
        same = next((fake for fake, array in self._arrays.values() if array is made), None)
        if type(made) is numpy.ndarray:
            if made.flags.num >> WARNS_BIT & 1:
                raise Break("numpy", "an array that warns when it is written")
            access = access_of(made)
            if access.backwards:
                made = numpy.flip(made, access.backwards)
            if made.size:
                shares, offset = self._owner(made)
        if any(s % made.itemsize for s in made.strides):
            raise Break("numpy", "an array of parts of elements")
        strides = tuple(stride // made.itemsize for stride in made.strides)
        dtype = getattr(torch, made.dtype.name)
        return Result(type(made), dtype, made.shape, strides, same, shares, offset, access)

    def _owner(self, made: Any) -> tuple[Fake | None, int]:
        """Returns an argument whose memory the array is in, and the offset of the array there."""
        start = made.__array_interface__["data"][0]
        for fake, _ in self._arrays.values():
            memory = self._memory[id(fake.memory)]
            behind = start - memory.__array_interface__["data"][0]
            if 0 <= behind < memory.size:
                if dtype_of(fake) is not made.dtype and (
                    behind % made.itemsize or made.dtype.kind == "b"
                ):
                    raise Break("numpy", "a view of an array as another dtype")
                return fake, behind // made.itemsize
        return None, 0


def ask(
    fn: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    writes: bool = False,
    known: Known = nothing_known,
    at: Callable[[Symbol], int] = operator.attrgetter("hint"),
) -> tuple[Any, bool]:
    """Returns what NumPy's function returns for such arguments, and whether the elements decide sizes of new
    arrays; these sizes are then those for ones. `at`: the values of the symbols in sizes. Breaks if it raises or
    warns, so that plain Python does so; or if it writes to an argument, unless `writes`."""
    answers = []
    for element in (0, 1):
        samples = Samples(arrays_of([args, kwargs]), element, at, writes or not answers, known)
        made = call_numpy(fn, samples.replaced(args), samples.replaced(kwargs))
        answers.append(samples.result(made))
    if same(*answers):
        return answers[0], False
    if same(*map(without_sizes, answers)):
        return answers[1], True
    raise Break(
        "numpy", f"{getattr(fn, '__name__', fn)}(...), whose result's layout depends on data"
    )


def call_numpy(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        with warnings_here("error"), numpy.errstate(all="ignore"):
            return fn(*args, **kwargs)
    except Exception as error:
        let_mistakes_through(error)
        text = f"{getattr(fn, '__name__', fn)}: {type(error).__name__}: {first_line(error)}"
        raise Break("op_error", text) from error


def without_sizes(described: Any) -> Any:
    """Returns a description in which all new arrays of as many dimensions are alike."""
    if type(described) in (tuple, list):
        return type(described)(map(without_sizes, described))
    if not isinstance(described, Result) or described.shares is not None or described.same:
        return described
    nothing = (0,) * len(described.shape)
    return described._replace(shape=nothing, strides=nothing)


def same(first: Any, second: Any) -> bool:
    """Whether two answers are the same. Fakes are compared by identity."""
    if isinstance(first, Result) and isinstance(second, Result):
        # A view of a sample that may not be written may not be written.
        parts = [(*r[:-1], r.access.backwards) for r in (first, second)]
        pairs = zip(*parts, strict=True)
        return all(a is b if isinstance(a, Fake) else a == b for a, b in pairs)
    if isinstance(first, Constant) and isinstance(second, Constant):
        return first.value is second.value
    if type(first) is not type(second) or len(first) != len(second):
        return False
    return all(map(same, first, second))


def arrays_of(argument: Any) -> list[Any]:
    """Returns the Fakes in an argument; for some arrays, with their access."""
    return [part for part in parts_of(argument) if isinstance(part, Fake | Accessed)]


def fakes_of(argument: Any) -> list[Fake]:
    return [part for part in parts_of(argument) if isinstance(part, Fake)]


def parts_of(argument: Any) -> list[Any]:
    """Returns what is in the containers of an argument, with the Fakes of numbers."""
    parts: list[Any] = []

    def visit(part: Any) -> Any:
        if type(part) in (tuple, list, dict, slice):
            map_arguments(visit, part)
        else:
            parts.append(part.fake if isinstance(part, Number) else part)

    visit(argument)
    return parts


def map_arguments(change: Callable[[Any], Any], argument: Any) -> Any:
    """Returns a container of arguments with its items changed; anything else as it is."""
    if type(argument) in (tuple, list):
        return type(argument)(change(item) for item in argument)
    if type(argument) is dict:
        return {name: change(item) for name, item in argument.items()}
    if type(argument) is slice:
        return slice(*(change(bound) for bound in (argument.start, argument.stop, argument.step)))
    return argument


def dtype_of(fake: Fake) -> Any:
    dtype = NUMPY_DTYPES.get(str(fake.dtype).partition(".")[2])
    if dtype is None:
        raise Break("numpy", f"an array of {fake.dtype}")
    return dtype
