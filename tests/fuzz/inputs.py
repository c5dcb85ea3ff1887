"""Draws the arguments of calls: tensors that alias each other or not, of few dtypes and sizes, numbers and containers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz import support

DTYPES = ["float32"] * 10 + ["float64", "int64", "int32", "bool", "float16", "bfloat16", "uint8", "int8", "int16", "complex64"]  # fmt: skip
SIZES = ((0, 1, 2, 3, 5), (1, 2, 3, 4), (2, 3, 4), (1, 2), (3,), (3, 3, 4))
# By rank: rows that fill vectors, and tiles, and leave some over; products of all pairs of elements still fit into memory.
LARGE = {1: ((1, 100, 1000), (64, 257)), 2: ((7, 16, 33), (1, 8, 40), (3, 32, 64)), 3: ((2, 8, 17), (1, 4, 16))}  # fmt: skip
PARTS = ("{0}", "{0}[1:]", "{0}.t()", "{0}.view(-1)", "{0}[..., :1]", "{0}.detach()")


@dataclass(frozen=True)
class Step:
    """One call: the function that makes its arguments, and what is around it."""

    name: str
    text: str
    mode: str = ""
    change: str = ""
    change_name: str | None = None


class Inputs:
    """Of all calls of a program."""

    def __init__(self, choose: random.Random, grad: bool) -> None:
        self.choose = choose
        self.rank = choose.choice((0, 1, 2, 2, 2, 3))
        self.sizes = choose.choice(SIZES)
        if choose.random() < 0.3:
            self.sizes = choose.choice(LARGE.get(self.rank, SIZES))
        self.plainly = choose.random() < 0.4  # contiguous
        self.vary = choose.random() < 0.6
        dtypes = choose.sample(DTYPES, choose.choice((1, 1, 1, 2, 3)))
        grads = ("leaf", "made", "") if grad else ("",)
        self._kinds = [(choose.choice(dtypes), choose.choice(grads)) for _ in "xyz"]
        self._first = self._shape()

    def step(self, k: int) -> Step:
        """A function that makes the arguments of call `k`."""
        choose = self.choose
        base = self._shape() if k and self.vary else self._first
        lines: list[str] = []
        for position, name in enumerate("xyz"):
            lines.append(f"{name} = {self._argument(base, position, k, lines)}")
        n = k if choose.random() < 0.3 else choose.choice((*range(-2, 6), 2, 3, 1 << 16))
        number = choose.choice((0.5, 1.0, 0.0, -1.25, 3.0, float(k)))
        flag = choose.random() < 0.5
        items = [choose.randrange(4) for _ in range(choose.choice((0, 2, 2, 3)))]
        first, second = self._kinds[0][0], self._kinds[1][0]
        few = [self._tensor(base, first, 50 + k + j) for j in range(choose.choice((1, 2, 2)))]
        box = f"Box({self._tensor(base, 'float32', 70 + k)}, {choose.randrange(4)})"
        other = choose.choice(("x", "7", "y")) if choose.random() < 0.3 else "2"
        table = f"{{'a': {self._tensor(base, second, 80 + k)}, 'b': {other}}}"
        lines.append(
            f"return x, y, z, {n}, {number}, {flag}, {items}, [{', '.join(few)}], {box}, {table}"
        )
        name = f"arguments_{k}"
        return Step(name, f"def {name}():\n" + "".join(f"    {line}\n" for line in lines))

    def _argument(self, base: list[int], position: int, k: int, lines: Sequence[str]) -> str:
        choose = self.choose
        dtype, grad = self._kinds[position]
        if choose.random() < 0.05:
            dtype = choose.choice(DTYPES)
        shape = base if choose.random() < 0.7 else self._shape()
        if not position or choose.random() > 0.12:
            return self._tensor(shape, dtype, k * 10 + position, grad)
        other = choose.choice("xyz"[:position])
        made = choose.choice(PARTS).format(other)
        return made if self._fits([*lines, made]) else other

    def _fits(self, lines: Sequence[str]) -> bool:
        space: dict[str, Any] = {"tensor": support.tensor}
        try:
            exec("\n".join(lines), space)
        except support.ERRORS:
            return False
        return True

    def _shape(self) -> list[int]:
        return [self.choose.choice(self.sizes) for _ in range(self.rank)]

    def _tensor(self, shape: list[int], dtype: str, seed: int, grad: str = "") -> str:
        layout = "plain"
        if shape and not self.plainly:
            layout = self.choose.choice(("plain", *support.LAYOUTS[:-1]))
        if self.choose.random() < 0.01:
            layout = "overlapping"
        more = (f", {layout!r}" if layout != "plain" else "") + (f", grad={grad!r}" if grad else "")
        return f"tensor({shape}, {dtype!r}, {seed}{more})"
