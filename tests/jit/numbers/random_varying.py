"""Random programs whose arguments vary from call to call in all ways: `python -m tests.jit.numbers.random_varying --programs 200` compares each with plain calls.

A program is text, made line by line of the templates below; a line that plain Python refuses too often is left out.  Sizes and numbers are compared, returned,
computed with, branched on and looped over; inputs are transposed, sliced, expanded, without elements or each other's views, and written to.  Compared is all
that `observe` sees, after every call, in a process with fresh garbage between the calls.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import linecache
import math
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

import frameloom
from frameloom import jit
from tests.observe import assert_same_call, observe

# In templates: $x a tensor, $i an int, $f a float, $b a bool, $d a dimension, $c an int as text, $s a size that is small.
INTS = """
$c | $c | $x.shape[$d] | $x.shape[$d] | $x.shape[$d] | len($x) | $x.numel() | $x.stride($d) | $x.dim() | $x.storage_offset() | sum($x.shape) | max($x.shape) | n | n | n
len(items) | items[0] | $i + $i | $i - $i | $i * $i | $i // $i | $i % $i | max($i, $i) | min($i, $i, $c) | $i - $c | $i // 2 | $i % 3 | -$i | abs($i) | divmod($i, 3)[1]
($i if $b else $i) | $i & 3 | $i >> 1 | $i ** 2 | int($i / 2) | math.gcd($i, $i) | clip($i) | $i + $b | len(range(0, $i, 2)) | outer($i)($i) | ($i or $i) | int(str($i)) | sorted([$i, $i, 3])[1]
holder.count | len(holder.seen)
"""
FLOATS = """$i / 2 | f | f | f * $i | float($i) | math.sqrt(abs($i)) | f + $i | max(f, 0.0) | $i ** 0.5 | round($i / 3, 2) | holder.scale"""
BOOLS = """
$i < $i | $i >= $i | $i == $i | $i != $c | $i > $c | $i <= $c | $i in (1, 2, 3) | 1 < $i < $i | $i % 2 == 0 | not $i | $x.is_contiguous() | $x.shape == $x.shape | any(s == 1 for s in $x.shape)
$x is $x | $x.stride() == $x.stride() | ($b and $b) | ($b or $b) | (not $b) | $b == $b | f < $i | flag | flag | $i in $x.shape | tuple($x.shape) in {(2, 3): 1} | $x._base is None
"""
TENSORS = """
$x + $i | $x * $f | $x + $x | $x - $x | $x[:$i] | $x[$i:] | $x[$i:$i] | $x[::$s] | $x[..., :$i] | $x[-$i:] | $x.reshape(-1) | $x.reshape($x.shape[0], -1) | $x.view(-1, $x.shape[-1])
$x.transpose(0, -1) | $x.unsqueeze($d) | $x.squeeze($d) | $x.expand($i, *$x.shape) | torch.cat([$x, $x], $d) | torch.stack([$x, $x + $i]) | $x.sum($d) | $x.sum($d, keepdim=True) | $x.amax($d)
torch.zeros($i, $i) | torch.ones($x.shape) * $i | torch.arange($i) | torch.full(($i, 2), $i) | $x.new_zeros($x.shape[0], $i) | $x.narrow($d, $i, $i) | $x.select($d, $i) | $x[$i % $x.shape[0]]
$x.roll($i, $d) | $x.flip($d) | $x.chunk(2, $d)[-1] | $x.split($i, $d)[0] | $x.unbind($d)[-1] | $x.contiguous() | $x.clone() | $x.flatten() | $x @ $x.transpose(-1, -2) | torch.where($x > 0, $x, $i)
torch.arange($x.shape[-1]) < $i | $x.tril($i) | helper($x, $i) | helper($x, m=$i) | $x.diagonal() | F.pad($x, (0, $i)) | $x[None] | $x[:, $i] | $x[: $x.shape[0] // 2] | $x.cumsum($d)
$x.reshape($x.shape[::-1]) | $x.reshape($i, $i) | $x.reshape(-1, $i) | $x.view($x.shape) | torch.tensor([$i, $i]) | torch.tensor($i) + $x | $x.clamp(max=$i) | $x.repeat_interleave($s, 0) | $x // $i
$x.sort($d)[0] | $x.to(torch.float64) | $x.tile($s) | $x.softmax($d) | $x / $x.shape[-1] | $x.mean($d) | $x - $x.mean($d, keepdim=True) | $x.tanh() | holder.buf + holder.count | torch.cat(parts)
parts[-1] | sum(parts) | table["a"] * $i | torch.tensor(items) | torch.cat([$x] * clip($i, 1, 3)) | box.x * $i
"""
VALUES = """
$x.shape | $x.stride() | f"{$i} {$x.shape}" | f"{$f:.2f}" | str($i) | list($x.shape) | [s + 1 for s in $x.shape] | sizes_of($x) | divmod($i, 3) | tuple($x.shape) | ($i, $b) | {"a": $i, "b": [$b, $f]}
range($i) | slice($i, None) | Pair($i, $x) | Box($x, $i) | [$b, $b, $b] | collections.deque([$i, $i], maxlen=3) | {$i: $x} | list(range(clip($i))) | sorted($x.shape) | [a * b for a, b in zip($x.shape, $x.stride())]
"""
WRITES = """
$x.add_($i) | $x.add_($x) | $x[$i:$i] = $c | $x[:$i] = $i | $x[..., 0] = $i | $x.copy_($x) | $x[:$i].mul_(2) | $x[::2] += $i | $x.fill_($i) | torch.add($x, $i, out=$x) | $x += $i | $x[1:] = $x[:-1].clone()
$x[$x > 0] = $i | $x.transpose(0, -1).copy_($x) | $x.clamp_(-1, $i) | $x[:, 1:] += $x[:, :-1] | items.append($i) | items[0] = $i | parts.append($x) | box.n += $i | box.x = $x | table["z"] = $x
holder.count += 1 | holder.seen.append($i) | holder.buf = torch.zeros($s) | holder.buf.add_(1) | holder.scale *= 0.5 | holder.last = $x | n += $i | print($i) | frameloom.graph_break()
"""
STATEMENTS = """
T = $t | T = $t | T = $t | T = $t | I = $i | I = $i | V = $v | $w | $w | if $b:;    T = $t;else:;    T = $t | if $b:;    $w | if $b:;    return $v, $x | T = $t;for k in range(clip($i, 0, 4)):;    T = T + k * $i
I = $i;for k in $x.shape:;    I += k * $i | I = abs($i);while I > 2:;    I //= 2 | try:;    T = $t;except ERRORS as error:;    T = $t;    V = type(error).__name__ | T = (lambda q, s=2: q * s + $i)($x, $i)
I, *rest = $x.shape | if $b and $b:;    raise ValueError(f"no {$i}") | I, J = divmod($i, 3);V = (I, J)
"""
KINDS = {
    kind: [line.strip() for line in text.replace("\n", "|").split("|") if line.strip()]
    for kind, text in zip("ifbtvw", (INTS, FLOATS, BOOLS, TENSORS, VALUES, WRITES), strict=True)
} | {"line": [line.strip() for line in STATEMENTS.replace("\n", "|").split("|") if line.strip()]}
AROUND = """
import collections, math
from dataclasses import dataclass
import torch
import torch.nn.functional as F
import frameloom

Pair = collections.namedtuple("Pair", "a b")
ERRORS = (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError, AttributeError)

@dataclass
class Box:
    x: object
    n: int = 1

class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("buf", torch.zeros(3))
        self.count, self.scale, self.seen, self.last = 0, 1.5, [], None

holder = Holder()

def helper(x, n=2, *, m=1):
    return x[:n] * m if x.shape[0] > n else x + m

def sizes_of(x):
    return [s for s in x.shape]

def clip(n, low=0, high=5):
    return low if n < low else high if n > high else n

def outer(n):
    total = 1
    def add(k):
        nonlocal total
        total += k * n
        return total
    return add

def fn(x, y, n, f, flag, items, parts, box, table):
"""
LAYOUTS = ("plain", "plain", "plain", "transposed", "stepped", "expanded", "inner")


class Program:
    """One of them: its text, and arguments for its calls."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.choose = random.Random(seed)
        self.rank = self.choose.choice((1, 2, 2, 2, 3))
        self.dtype = self.choose.choice(["float32"] * 4 + ["int64"])
        self.sizes = self.choose.choice(((0, 1, 2, 3, 5), (1, 2, 3, 4), (2, 3, 5, 8), (1, 2)))
        self.number = self.choose.choice(("counter", "size", "any"))
        self.tensors, self.ints = ["x", "y"], ["n"]
        lines: list[str] = []
        for _ in range(60):
            name = f"{len(lines)}"
            line = self.filled(self.choose.choice(KINDS["line"]), 0)
            made = {letter: f"{letter.lower()}{name}" for letter in "TIJV"}
            text = re.sub(r"\b[TIJV]\b", lambda m, made=made: made[m[0]], line).split(";")
            if self._runs([*lines, *text], "None"):
                lines += text
                self.tensors += [made["T"]] if re.search(r"\bT =", line) else []
                self.ints += [made["I"]] if re.match("I,? ", line) else []
            if len(lines) > 8:
                break
        result = next(
            (r for _ in range(20) if self._runs(lines, r := self.filled("($x, $i, $b, $v, [$i, $x], $v)", 0))), "None"
        )  # fmt: skip
        self.text = self._text(lines, result)

    def filled(self, template: str, depth: int) -> str:
        """With everything drawn that it leaves open."""

        def put(m: re.Match[str]) -> str:
            kind, choose = m[1], self.choose
            if kind == "x":
                return choose.choice(self.tensors)
            if kind == "d":
                return choose.choice(("0", "-1", "1"))
            if kind in "cs" or (depth > 3 and kind == "i"):
                return str(choose.choice((1, 2, 3) if kind == "s" else (0, 1, 2, 3, 4, 5, -1)))
            if kind == "i" and choose.random() < 0.15:
                return choose.choice(self.ints)
            found = self.filled(choose.choice(KINDS[kind][: 15 if depth > 2 else None]), depth + 1)
            return f"({found})" if kind in "ifb" else found

        return re.sub(r"\$([a-z])", put, template)

    def _text(self, lines: list[str], result: str) -> str:
        return AROUND + "".join(f"    {line}\n" for line in [*lines, f"return {result}"])

    def _runs(self, lines: list[str], result: str) -> bool:
        """Whether most calls do without an exception, and what they give is not too large."""
        try:
            space = names_of(self._text(lines, result), "trial")
        except SyntaxError:
            return False
        failed = 0
        for call in range(6):
            try:
                with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
                    if len(repr(space["fn"](*self.arguments(call, space)))) > 5000:
                        return False
            except Exception:
                failed += 1
        return failed < 3

    def arguments(self, call: int, space: dict[str, Any]) -> tuple[Any, ...]:
        """The same at each asking, but made anew."""
        choose = random.Random(self.seed * 1000 + call)
        numbers = torch.Generator().manual_seed(choose.randrange(1 << 30))
        sizes = [choose.choice(self.sizes) for _ in range(3)]

        def tensor(shape: list[int]) -> torch.Tensor:
            layout = "plain" if any(n < 2 for n in shape) else choose.choice(LAYOUTS)
            big = [2 * n for n in shape] if layout == "stepped" else [*shape[:-1], shape[-1] + 2]
            big = shape[::-1] if layout == "transposed" else [1, *shape[1:]] if layout == "expanded" else big  # fmt: skip
            made = torch.randint(-5, 9, big, generator=numbers)
            if self.dtype != "int64":
                made = made / 4 + torch.rand(big, generator=numbers)
            if layout == "transposed":
                return made.permute(*range(len(shape))[::-1])
            if layout == "stepped":
                return made[(slice(None, None, 2),) * len(shape)]
            if layout == "expanded":
                return made.expand(shape)
            return made[..., 1:-1].clone() if layout == "plain" else made[..., 1:-1]

        x = tensor(sizes[: self.rank])
        y = choose.choice((x, x[1:], x.t())) if choose.random() < 0.1 and x.dim() < 3 else tensor(sizes[: self.rank])  # fmt: skip
        n = {"counter": call, "size": sizes[0]}.get(self.number, choose.choice((0, 1, 3, -2, 1 << 40, 1 << 63)))  # fmt: skip
        f = choose.choice((0.5, 1.0, 0.0, -1.25, 3.0, math.inf))
        items = [choose.randrange(4) for _ in range(2 + call % 3)]
        parts = [tensor([sizes[0]]) for _ in range(1 + call % 2)]
        table = {"a": tensor([sizes[1], 2]), "b": tensor([sizes[0]])}
        return x, y, n, f, choose.random() < 0.5, items, parts, space["Box"](tensor([sizes[0], 3]), call), table  # fmt: skip


def names_of(text: str, name: str) -> dict[str, Any]:
    """What running the text defines."""
    space: dict[str, Any] = {"__name__": "program"}
    linecache.cache[f"<{name}>"] = len(text), None, text.splitlines(True), f"<{name}>"
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), space)
    return space


def seen(fn: Callable[..., Any], program: Program, call: int, space: dict[str, Any]) -> observe:
    found = observe(fn, lambda: program.arguments(call, space), state=lambda: [vars(space["holder"])])  # fmt: skip
    told = ("frameloom", "Triggered internally")  # notices of ours, and warnings that come once
    found.printed = "\n".join(s for s in found.printed.splitlines() if not any(t in s for t in told))  # fmt: skip
    return found


def difference(seed: int, calls: int = 10) -> str | None:
    """What differs from plain calls, None if nothing does."""
    program, choose = Program(seed), random.Random(seed)
    plain, other = (names_of(program.text, f"program {seed}") for _ in range(2))
    frameloom.reset()
    jitted = jit(other["fn"], dynamic=choose.choice((None, None, True)), backend=choose.choice((None, "eager")))  # fmt: skip
    garbage: list[Any] = []
    for _ in range(calls):
        call = choose.randrange(calls)
        garbage = [[object() for _ in range(choose.randrange(200))] for _ in range(5)]
        want, got = seen(plain["fn"], program, call, plain), seen(jitted, program, call, other)
        try:
            assert_same_call(got, want, f"program {seed}, call {call}", 1e-4, 1e-4)
        except AssertionError as error:
            return f"{error!s:.500}\n{program.text[program.text.index('def fn(') :]}"
    del garbage
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = [difference(seed) for seed in range(options.first, options.first + options.programs)]
    wrong = [text for text in found if text is not None]
    print(*wrong, f"{options.programs} programs, {len(wrong)} wrong", sep="\n")


if __name__ == "__main__":
    main()
