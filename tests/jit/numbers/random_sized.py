"""Random programs over random shapes, compiled with sizes that vary: `python -m tests.jit.numbers.random_sized --programs 500` compares each with plain
calls at several shapes and prints what differs."""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit

Step = tuple[str, Callable[..., Any]]


def steps_of(rng: random.Random) -> list[Step]:
    """What may be done to a tensor of two or three dimensions; every step gives such a tensor again."""
    k = rng.randint(1, 3)
    return [
        ("scale", lambda x: x * 1.5 + k),
        ("relu", lambda x: x.relu() - 0.25),
        ("sigmoid", lambda x: torch.sigmoid(x)),
        ("flat", lambda x: x.reshape(-1, x.shape[-1])),
        ("fold", lambda x: x.reshape(x.shape[0], -1)),
        ("double", lambda x: torch.cat([x, x * 2], -1)),
        ("stacked", lambda x: torch.cat([x, x.flip(0)], 0)),
        ("head", lambda x: x[: x.shape[0] - x.shape[0] // 2]),
        ("tail", lambda x: x[..., x.shape[-1] // 2 :]),
        ("every", lambda x: x[::2]),
        ("swap", lambda x: x.transpose(-1, -2)),
        ("copied", lambda x: x.transpose(0, -1).contiguous()),
        ("softmax", lambda x: torch.softmax(x, -1)),
        ("norm", lambda x: x / (x.abs().sum(-1, keepdim=True) + 1)),
        ("centred", lambda x: x - x.mean(0)),
        ("peak", lambda x: x - x.amax(dim=-1, keepdim=True)),
        ("column", lambda x: x + torch.arange(x.shape[-1]).float() / 7),
        ("row", lambda x: x * torch.arange(x.shape[0]).float().view(-1, *[1] * (x.dim() - 1))),
        ("mask", lambda x: x.masked_fill(torch.arange(x.shape[-1]) >= x.shape[-1] - k, 0.5)),
        ("causal", lambda x: x.tril() if k > 1 else x.triu(1)),
        ("where", lambda x: torch.where(x > 0.1, x, torch.zeros_like(x) - k)),
        ("wide", lambda x: x.unsqueeze(0).expand(2, *x.shape).reshape(-1, *x.shape[1:])),
        ("padded", lambda x: F.pad(x, (k, 1), value=0.5)),
        ("gram", lambda x: x @ x.transpose(-1, -2) / x.shape[-1]),
        ("ones", lambda x: x + torch.ones(x.shape[-1]) * x.shape[0]),
        ("full", lambda x: torch.full_like(x, 0.5) + x),
        ("sum", lambda x: x.sum(-1, keepdim=True) + x),
        ("cumulative", lambda x: x.cumsum(-1) / x.shape[-1]),
        ("chosen", lambda x: x.index_select(0, torch.arange(x.shape[0] - 1, -1, -1))),
        ("split", lambda x: torch.cat(x.chunk(2, -1)[::-1], -1)),
        ("roll", lambda x: x.roll(k, -1)),
        ("clamped", lambda x: x.clamp(-3, 3)),
        # Not those above 0: what is left of centred numbers there is how they were rounded.
        ("counted", lambda x: x + (x > 1e-3).sum(-1, keepdim=True)),
    ]  # fmt: skip


def program(seed: int) -> tuple[Callable[..., Any], str, Callable[[], tuple[torch.Tensor, ...]]]:
    """A program, the names of its steps, and what makes its arguments: with other sizes each time."""
    rng = random.Random(seed)
    rank = rng.choice((2, 2, 3))
    chosen = [rng.choice(steps_of(rng)) for _ in range(rng.randint(2, 6))]
    second = rng.random() < 0.4

    def fn(x: torch.Tensor, *more: torch.Tensor) -> Any:
        for _, step in chosen:
            x = step(x)
        return (x, more[0] * 2 + x.shape[0]) if more else (x, x.shape[-1])

    def arguments() -> tuple[torch.Tensor, ...]:
        shape = [rng.choice((1, 2, 3, 4, 5, 8, 13, 17)) for _ in range(rank)]
        x = torch.randn(shape)
        return (x, torch.randn(shape[0], 3)) if second else (x,)

    return fn, ", ".join(name for name, _ in chosen), arguments


def needs_gradients(seed: int) -> bool:
    return seed % 3 == 0


def outcome(fn: Callable[..., Any], args: tuple[torch.Tensor, ...], gradients: bool) -> Any:
    """The results, and gradients of the arguments; or an exception."""
    if gradients:
        args = tuple(a.clone().requires_grad_() for a in args)
    try:
        results = fn(*args)
        if not gradients:
            return results
        parts = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        weights = [torch.linspace(-1, 1, r.numel()).view(r.shape) for r in parts]
        loss = sum((r * w).sum() for r, w in zip(parts, weights, strict=True))
        found = torch.autograd.grad(loss, args, allow_unused=True) if parts else ()
        return (*results, *(g for g in found if g is not None), len(found))
    except (RuntimeError, IndexError) as error:
        return error


def difference(seed: int, calls: int = 6) -> str | None:
    """What differs from plain calls, None if nothing does."""
    fn, names, arguments = program(seed)
    frameloom.reset()
    jitted = jit(fn)
    for _ in range(calls):
        args = arguments()
        shapes = [tuple(a.shape) for a in args]
        want = outcome(fn, args, needs_gradients(seed))
        got = outcome(jitted, args, needs_gradients(seed))
        if isinstance(want, Exception) or isinstance(got, Exception):
            if type(want) is not type(got):
                return f"program {seed} ({names}) at {shapes}: {want!r:.200} and {got!r:.200}"
            continue
        for a, b in zip(want, got, strict=True):
            if isinstance(a, torch.Tensor):
                if a.shape != b.shape or not torch.allclose(
                    a, b, rtol=1e-4, atol=1e-5, equal_nan=True
                ):
                    return f"program {seed} ({names}) at {shapes}: values differ"
            elif a != b or type(a) is not type(b):
                return f"program {seed} ({names}) at {shapes}: {a!r} and {b!r}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong = 0
    graphs: list[int] = []
    for seed in range(options.first, options.first + options.programs):
        try:
            found = difference(seed)
        except Exception as error:
            found = (
                f"program {seed} ({program(seed)[1]}) fails: {type(error).__name__}: {error!s:.300}"
            )
        graphs.append(frameloom.stats()["graphs"])
        if found is not None:
            wrong += 1
            print(found, flush=True)
    print(
        f"{options.programs} programs, {wrong} wrong; graphs: {sum(graphs) / len(graphs):.2f} on average, {max(graphs)} at most"
    )


if __name__ == "__main__":
    main()
