"""Functions of tensors and numbers that decide sizes, called with one pair of sizes and numbers after the other: pieces, broadcasts, shapes that are
computed, of sizes and numbers that are often 0, 1 or below 0.

`sweep_sizes(seed, count)` tells which calls differ from eager: in shape, strides, values or gradients, or in whether they raise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

import frameloom
from tests.fuzz.interpret import interpreted

CALLS = 9
ONE = """
    {x}[n:] | {x}[:n] | {x}[n:m] | {x}[-n:] | {x}[:-n] | {x}[::n] | {x}[n] | {x}[n : n + 1] | {x}[n : {x}.shape[0]] | {x}[: z.shape[0]] | {x}[n : z.numel()]
    {x}.narrow(0, n, m) | {x}.reshape(-1)[n:] | {x}.reshape(n, -1) | {x}.reshape(-1, m) | {x}.view(m, -1) | {x}.repeat(n) | {x}.repeat_interleave(n)
    {x}.expand(n, *{x}.shape) | {x}.unsqueeze(0).expand(n, *{x}.shape) | F.pad({x}, (n, m)) | torch.zeros(n) | torch.arange(n).float() | {x}.mT | {x}.flatten()
    torch.arange(n, m + n).float() | torch.ones(n, m) | {x}.roll(n) | {x}.chunk(n)[0] | {x}.split(n)[-1] | {x}.unfold(0, n, m) | torch.cat([{x}, z]) | {x}.diag()
    torch.cat([{x}[n:], z[:m]]) | torch.stack([{x}, {x}]) | {x}[:, None] | {x}[None] | {x}.sum(0, keepdim=True) | {x}.cumsum(0) | {x}.flip(0) | {x}.squeeze(0)
    {x}[: {x}.shape[0] // n] | {x}[: min(n, m)] | {x}[max(n, m) - 1 :] | {x}[{x}.shape[0] // 2 :] | {x}[n * m :] | {x}[(n + m) // 2 :] | {x}.sum(-1) | {x}.mean(0)
    {x}.new_zeros({x}.shape[0] - n) | {x}.new_ones(max(n, 1)) | {x}.tile(n) | torch.eye(n) | {x}.tril(n) | {x}.diagonal(n) | {x}.index_select(0, torch.arange(n))
    {x}.sort(0)[0] | {x}.topk(n, 0)[0] | {x}.as_strided((n,), (1,)) | {x}.squeeze() | {x}.movedim(0, -1) | torch.linspace(0, 1, n) | torch.full((n,), float(m))
    {x}.unflatten(0, (n, -1)) | {x}.take(torch.arange(n)) | {x}[torch.arange(n)] | torch.outer({x}.flatten(), z.flatten()) | {x} * n | {x} + m
    {x}.gather(0, torch.zeros_like({x}, dtype=torch.long)) | torch.tensor([n, m]).float()
"""  # fmt: skip
TWO = """
    {x} + {y} | {x} * {y} | torch.where({x} > 1, {x}, {y}) | torch.maximum({x}, {y}) | torch.cat([{x}, {y}]) | torch.stack([{x}, {y}]) | {x} @ {y}
    torch.add({x}, {y}, alpha=2) | ({x} * 1).add_({y}) | ({x} * 1).copy_({y}) | {x}.expand_as({y}) | {x}.view_as({y}) | torch.lerp({x}, {y}, 0.5)
    torch.broadcast_tensors({x}, {y})[0] * 1 | {x} - {y}.sum(0) | {x}.mul({y}).sum(0) | torch.addcmul({x}, {y}, {x})
"""
TABLES = tuple([t.strip() for line in text.strip().splitlines() for t in line.split(" | ")] for text in (ONE, TWO))  # fmt: skip
# Strides of a size of 1 where something is cut off; numbers below 0 that say how much.
OPEN = ("F.pad",)


def formula(choose: random.Random, depth: int = 0) -> str:
    if depth == 3 or choose.random() < 0.25:
        return choose.choice("xzz")
    one, two = TABLES
    if choose.random() < 0.55:
        return f"({choose.choice(one).format(x=formula(choose, depth + 1))})"
    return (
        f"({choose.choice(two).format(x=formula(choose, depth + 1), y=formula(choose, depth + 1))})"
    )


def drawn(choose: random.Random) -> tuple[str, Callable[..., Any]]:
    """A formula of one of the numbers at least, that some arguments fit."""
    while True:
        text = formula(choose)
        scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(f"def fn(x, z, n, m):\n    return {text}\n", scope)
        if any(f"{sign}n" in text or f"{sign}m" in text for sign in " ([:-"):
            try:
                scope["fn"](torch.arange(4.0), torch.arange(4.0), 1, 2)
            except (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError):
                continue
            return text, scope["fn"]


def arguments(choose: random.Random, rank: int) -> tuple[Any, ...]:
    first, second = ([choose.choice((1, 2, 3, 3, 4, 5, 6)) for _ in range(rank)] for _ in range(2))
    shapes = first, first if choose.random() < 0.6 else second
    tensors = [torch.arange(float(torch.Size(shape).numel())).view(shape) for shape in shapes]
    return *tensors, choose.choice((0, 1, 1, 2, 2, 3, 4, -1)), choose.choice((0, 1, 1, 2, 2, 3))


def outcome(fn: Callable[..., Any], given: tuple[Any, ...], follow: bool) -> Any:
    x, z = (t.clone().requires_grad_(follow) for t in given[:2])
    try:
        found = fn(x, z, *given[2:])
    except Exception as error:
        return type(error).__name__
    if found.requires_grad and found.is_floating_point():
        (found * torch.arange(float(found.numel())).view(found.shape)).sum().backward()
    strides = found.stride() if found.numel() else None
    gradients = [None if t.grad is None else rounded(t.grad) for t in (x, z)]
    return found.shape, strides, found.dtype, found.requires_grad, rounded(found), gradients


def rounded(tensor: torch.Tensor) -> Any:
    """Without signs of zero."""
    return [float(f"{n:.4g}") + 0.0 for n in tensor.detach().double().flatten().tolist()]


def sweep_sizes(seed: int = 0, count: int = 1_000) -> Iterator[tuple[str, str]]:
    """The calls that differ, each with the number that draws it again."""
    with interpreted(), torch.enable_grad():
        for number in range(count):
            choose = random.Random(f"{seed} {number}")
            text, fn = drawn(choose)
            if any(name in text for name in OPEN):
                continue
            rank, follow = choose.choice((1, 1, 1, 2)), choose.random() < 0.3
            jitted = frameloom.jit(fn, dynamic=choose.choice((True, True, None)))
            for call in range(CALLS):
                given = arguments(choose, rank)
                plain = outcome(fn, given, follow)
                if isinstance(plain, str) and choose.random() < 0.7:
                    continue
                ours = outcome(jitted, given, follow)
                if repr(plain) != repr(ours):
                    yield f"{text}, {seed} {number}, call {call}", f"{plain} and {ours}"[:600]
                    break
            if number % 50 == 0:
                frameloom.reset()
