"""Decides whether our kernels may draw the random numbers of a GPU, and finds how PyTorch draws them there.

Which of the generator's numbers an element gets is a detail of PyTorch's kernels (ir/philox.py).  Before our
kernels rely on it, the rule is compared once with what this PyTorch draws on this GPU; the result is kept on
disk.  If anything differs, random numbers stay library calls.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from frameloom.debug import log
from frameloom.ir.philox import ALIGNMENT, Generator, Stream, uniform, words
from frameloom.runtime.build.cache import digest, shared_cache

SEED, OFFSET = 0x1234567_89ABCDEF, 4 * 0x100000003
RATE = 0.3  # of dropout
NEAR = 4096  # elements that are compared at each end
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_known: dict[int, Generator | None] = {}


class Differs(Exception):
    """PyTorch draws differently from ir/philox.py."""


def generator_of(device: str) -> Generator | None:
    """Returns how PyTorch draws on a device; None if only its own kernels may draw."""
    place = torch.device(device)
    if place.type != "cuda" or not torch.cuda.is_available() or torch.version.hip is not None:
        return None
    index = torch.cuda.current_device() if place.index is None else place.index
    if index not in _known:
        if torch.cuda.is_current_stream_capturing():
            return None
        _known[index] = _cached_generator(index)
    return _known[index]


def _cached_generator(index: int) -> Generator | None:
    p: Any = torch.cuda.get_device_properties(index)
    key = digest("draws 1", torch.__version__, str(torch.version.cuda), str(p))
    cached = shared_cache().get(key, ".draws")
    if cached is not None:
        fields = json.loads(cached)
        return Generator(fields["blocks"], tuple(map(tuple, fields["widest"]))) if fields else None
    blocks = p.multi_processor_count * (p.max_threads_per_multi_processor // 256)
    generator: Generator | None = None
    try:
        generator = Comparison(index, blocks).generator()
    except Differs as difference:
        log("kernels", f"random numbers stay library calls: {difference}")
    except RuntimeError as error:  # not enough memory
        log("kernels", f"random numbers stay library calls for now: {error}")
        return None
    fields = {} if generator is None else {"blocks": generator.blocks, "widest": generator.widest}
    shared_cache().put(key, ".draws", json.dumps(fields).encode())
    return generator


class Comparison:
    """Compares what PyTorch draws on a device with ir/philox.py."""

    def __init__(self, index: int, blocks: int) -> None:
        self.device = torch.device("cuda", index)
        self.default: Any = torch.cuda.default_generators[index]
        self.blocks = blocks

    def generator(self) -> Generator:
        """Returns how PyTorch draws; raises Differs.  Restores the state of the program's generator."""
        seed, offset = self.default.initial_seed(), self.default.get_offset()
        try:
            with torch.no_grad(), torch.cuda.device(self.device):
                widest = tuple((d.itemsize, self._widest(d)) for d in DTYPES if d.itemsize != 2)
                both = {self._widest(d) for d in DTYPES if d.itemsize == 2}
                if len(both) != 1:
                    raise Differs("dropout of 16-bit types")
                generator = Generator(self.blocks, (*widest, (2, both.pop())))
                self._check_dropout(generator)
                self._check_fillers(generator)
                return generator
        finally:
            self.default.manual_seed(seed)
            self.default.set_offset(offset)

    def _draw(self, name: str, draw: Callable[[], Any], count: int) -> Any:
        self.default.manual_seed(SEED)
        self.default.set_offset(OFFSET)
        drawn = draw()
        if self.default.get_offset() - OFFSET != Generator(self.blocks, ()).increment(count):
            raise Differs(f"the generator's offset after {name} of {count}")
        return drawn

    def _places(self, count: int) -> torch.Tensor:
        """Returns the indices of the elements to compare: both ends, and some between."""
        step = max(1, count // NEAR) | 1
        place = torch.arange(0, count, step, device=self.device)
        ends = torch.arange(min(count, NEAR), device=self.device)
        return torch.cat([place, ends, count - 1 - ends])

    def _numbers(self, stream: Stream, places: torch.Tensor) -> torch.Tensor:
        seed, offset = torch.tensor([SEED, OFFSET], device=self.device).unbind()
        numbers: torch.Tensor = uniform(words(seed, offset, places, stream))
        return numbers

    # --- dropout

    def _dropout(self, x: torch.Tensor, stream: Stream) -> bool:
        """Whether dropout draws as `stream` says."""
        count = x.numel()
        out, mask = self._draw("dropout", lambda: torch.native_dropout(x, RATE, True), count)
        places = self._places(count)
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        keep_rate = torch.tensor(1 - RATE, dtype=wide, device=self.device)
        seen = mask.flatten()[places]
        if not torch.equal(self._numbers(stream, places).to(wide) < keep_rate, seen):
            return False
        value = x.flatten()[places].to(wide) * seen.to(wide) * (1.0 / keep_rate.double()).to(wide)
        return torch.equal(value.to(x.dtype), out.flatten()[places])

    def _memory(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.linspace(-1, 1, count, dtype=torch.float32, device=self.device).to(dtype)

    def _widest(self, dtype: torch.dtype) -> int:
        """Returns how many adjacent elements one thread of dropout handles."""
        x = self._memory(17 * 256 * self.blocks + 64, dtype)
        for width in (8, 4, 2, 1):
            if self._dropout(x, Stream(256 * self.blocks, width)):
                return width
        raise Differs(f"dropout of {dtype}")

    def _check_dropout(self, generator: Generator) -> None:
        many = 9 * 256 * self.blocks
        for dtype in DTYPES:
            item = dtype.itemsize
            for count in (1, 7, 250, 1000, many, many + 1, many + 2, many + 4):
                if not self._dropout(
                    self._memory(count, dtype), generator.of_dropout(count, item, ALIGNMENT)
                ):
                    raise Differs(f"dropout of {count} {dtype}")
            for start in (1, 2, 4):
                x = self._memory(4096 + start, dtype)[start:]
                stream = generator.of_dropout(4096, item, math.gcd(start * item, ALIGNMENT))
                if not self._dropout(x, stream):
                    raise Differs(f"dropout of {dtype} that starts at element {start}")
            gaps = self._memory(4096, dtype).view(64, 64)[:, :48]
            if not self._dropout(gaps, generator.of_dropout(gaps.numel(), item, 0)):
                raise Differs(f"dropout of {dtype} with gaps")

    # --- functions that fill a tensor

    def _check_fillers(self, generator: Generator) -> None:
        for name, draw, expected in self._fillers():
            for count in (1, 1000, 9 * 256 * self.blocks + 5):
                drawn = self._draw(name, partial(draw, count), count)
                places = self._places(count)
                numbers = self._numbers(generator.scattered(count), places)
                if not torch.equal(expected(numbers), drawn[places]):
                    raise Differs(f"{name} of {count}")

    def _fillers(self) -> Iterator[tuple[str, Callable[[int], Any], Callable[[Any], Any]]]:
        """Yields a name, a function that fills that many elements, and a function that computes the expected
        values from numbers in (0, 1]."""
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            rand = partial(torch.rand, dtype=dtype, device=self.device)
            yield f"rand {dtype}", rand, partial(_spread, 0, 1, dtype)
            filled = partial(_filled, "uniform_", (-1, 1), dtype, self.device)
            yield f"uniform_ {dtype}", filled, partial(_spread, -1, 1, dtype)
        for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
            filled = partial(_filled, "bernoulli_", (RATE,), dtype, self.device)
            yield f"bernoulli_ {dtype}", filled, partial(_below_rate, dtype)


def _filled(
    name: str, arguments: tuple[float, ...], dtype: torch.dtype, device: torch.device, count: int
) -> Any:
    return getattr(torch.empty(count, dtype=dtype, device=device), name)(*arguments)


def _spread(low: int, high: int, dtype: torch.dtype, numbers: torch.Tensor) -> torch.Tensor:
    value = (numbers * (high - low) + low).to(dtype)
    return torch.where(value == high, low, value).to(dtype)


def _below_rate(dtype: torch.dtype, numbers: torch.Tensor) -> torch.Tensor:
    return (numbers.double() < RATE).to(dtype)
