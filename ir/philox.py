"""The random numbers of a CUDA device: Philox-4x32-10, and the numbers that each element of a tensor gets.

A generator has a seed and an offset.  PyTorch's kernels run `threads` threads; thread `t` reads blocks of
four 32-bit words from stream `t`: the blocks number offset / 4, offset / 4 + 1, ...  If `width` is 1, the
words of a block go to elements that are `threads` apart.  Otherwise a thread computes `width` adjacent
elements at a time, with as many blocks as that takes, at least one.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), and the documentation and kernels
of PyTorch and cuRAND; jit/backend/draws.py compares the results with those of the installed PyTorch.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF
BLOCK = 256  # threads of a block in PyTorch's kernels
WORDS = 4
ALIGNMENT = 32  # bytes: the least alignment of memory that PyTorch allocates; no access is larger


@dataclass(frozen=True, slots=True)
class Stream:
    """Which words the elements of one draw get."""

    threads: int
    width: int

    def place(self, position: Any, arithmetic: Any = operator) -> Any:
        """Returns (blocks after the generator's offset, stream, word) of an element.  `arithmetic` has
        floordiv, mod, add and mul for the type of `position`."""
        div, mod, threads, width = arithmetic.floordiv, arithmetic.mod, self.threads, self.width
        if width == 1:
            rest = mod(position, WORDS * threads)
            return div(position, WORDS * threads), mod(rest, threads), div(rest, threads)
        turn, within = div(position, width), mod(position, width)
        blocks = div(turn, threads)
        if width > WORDS:
            blocks = arithmetic.add(arithmetic.mul(blocks, width // WORDS), div(within, WORDS))
        return blocks, mod(turn, threads), mod(within, WORDS)


@dataclass(frozen=True, slots=True)
class Source:
    """The layout in eager's memory of the tensor that dropout gets: `offset` in elements from the start of
    the input of that name, or of its own memory (None)."""

    strides: tuple[int, ...]
    offset: int
    input: str | None


@dataclass(frozen=True, slots=True)
class Generator:
    """How PyTorch draws on one device: at most `blocks` blocks per launch, and the `widest` accesses of
    dropout by bytes of an element."""

    blocks: int
    widest: tuple[tuple[int, int], ...]

    def threads(self, count: int) -> int:
        return BLOCK * min(self.blocks, -(-count // BLOCK))

    def increment(self, count: int) -> int:
        """Returns how far a draw of `count` numbers moves the offset."""
        return ((count - 1) // (self.threads(count) * WORDS) + 1) * WORDS

    def scattered(self, count: int) -> Stream:
        """Returns the stream of `rand`, `bernoulli_` and the like."""
        return Stream(self.threads(count), 1)

    def of_dropout(self, count: int, item_bytes: int, alignment: int) -> Stream:
        """Returns the stream of dropout.  `alignment`: of the address of a dense tensor, in bytes; 0: the
        tensor has gaps."""
        width = dict(self.widest).get(item_bytes, 1) if alignment else 1
        while width > 1 and (alignment % (width * item_bytes) or count % width):
            width //= 2
        return Stream(self.threads(count), width)


def words(seed: Any, offset: Any, position: Any, stream: Stream) -> Any:
    """Returns the words at `position`; all arguments are I64 tensors."""
    blocks, thread, word = stream.place(position)
    blocks = blocks + offset // WORDS
    counter = [blocks & WORD, (blocks >> 32) & WORD, thread & WORD, (thread >> 32) & WORD]
    key = [seed & WORD, (seed >> 32) & WORD]
    for _ in range(ROUNDS):
        # Products of 32-bit numbers; only the bits count, so they are right as unsigned 64-bit numbers.
        first, second = counter[0] * MULTIPLIERS[0], counter[2] * MULTIPLIERS[1]
        counter = [
            ((second >> 32) & WORD) ^ counter[1] ^ key[0], second & WORD,
            ((first >> 32) & WORD) ^ counter[3] ^ key[1], first & WORD,
        ]  # fmt: skip
        key = [(k + w) & WORD for k, w in zip(key, WEYL, strict=True)]
    result = counter[3]
    for k in (2, 1, 0):
        result = result.where(word != k, counter[k])
    return result


def uniform(bits: Any) -> Any:
    """Converts words to numbers in (0, 1], in single precision."""
    return bits.float() * 2.0**-32 + 2.0**-33
