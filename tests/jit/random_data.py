"""Random programs whose sizes the data decides: `python -m tests.jit.random_data --programs 500` compares each with plain calls."""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import frameloom
from tests.helpers import jit_for_test
from tests.observe import assert_same_call, observe


def rows(v: Any) -> Any:
    return v.reshape(v.shape[0], -1)


def assigned(v: Any) -> Any:
    w = v.clone()
    w[w > 0] = w[w > 0] * 3
    return w


def exchanged(v: Any) -> Any:
    n = int((rows(v)[:, :1] > 0).sum()) if v.numel() else 0
    first, second = v.split([n, v.shape[0] - n])
    return torch.cat([second + 1, first])


def more(v: Any) -> Any:
    return torch.cat([v, torch.zeros((int((v > 1).sum()), *v.shape[1:]))])


def repeated(v: Any) -> Any:
    return v.repeat_interleave((rows(v).sum(1).abs() * 2).long().clamp(0, 3), 0)


FIRST: dict[str, Callable[[Any], Any]] = {
    "elements": lambda v: v[v > 0.3],
    "rows": lambda v: v[rows(v).sum(1) > 0],
    "nonzero": lambda v: v.nonzero()[:, 0].float(),
    "unique": lambda v: (v * 2).round().unique(),
    "repeated": repeated,
    "item": lambda v: v[: int((v > 0).sum())],
    "more": more,
    "exchanged": exchanged,
}
OPS: dict[str, Callable[[Any], Any]] = {
    **FIRST, "scale": lambda v: v * 2 + 1, "cos": torch.cos, "cumsum": lambda v: v.cumsum(0), "flip": lambda v: v.flip(0),
    "sort": lambda v: v.sort(0).values, "second": lambda v: v[::2], "tail": lambda v: v[1:], "head": lambda v: v[:-1],
    "twice": lambda v: torch.cat([v, v]), "one_more": lambda v: torch.cat([v, torch.ones((1, *v.shape[1:]))]),
    "unsqueeze": lambda v: v.unsqueeze(-1), "transpose": lambda v: v.transpose(0, -1), "flatten": lambda v: v.flatten(),
    "column": lambda v: v.reshape(-1, 1), "contiguous": lambda v: v.contiguous(), "sum": lambda v: v.sum(0),
    "sum_last": lambda v: v.sum(-1, keepdim=True), "softmax": lambda v: v.softmax(-1), "mean": lambda v: v.mean(0, keepdim=True) + v,
    "amax": lambda v: v.amax(0), "length": lambda v: v * v.shape[0], "positions": lambda v: v + torch.arange(v.shape[-1]),
    "pad": lambda v: F.pad(v, (1, 1)), "expand": lambda v: v.unsqueeze(0).expand(3, *v.shape), "assigned": assigned,
    "scattered": lambda v: v.masked_scatter(v > 0, v[v > 0] * 2), "outer": lambda v: v.flatten()[:8, None] * v.flatten()[None, :4],
    "products": lambda v: v.flatten(1) @ v.flatten(1).t() if v.dim() > 1 else v, "norm": lambda v: v / v.norm(),
    "any": lambda v: v * (v > 1).any(), "argsort": lambda v: v[rows(v).sum(1).argsort()], "topk": lambda v: v.flatten().topk(2).values,
    "select": lambda v: v[0], "index": lambda v: v[torch.tensor([0, 0])], "where": lambda v: torch.where(v > 0, v, -v),
}  # fmt: skip


def program(seed: int) -> tuple[Callable[[Any], Any], list[str]]:
    r = random.Random(seed)
    names = [r.choice(list(FIRST)), *(r.choice(list(OPS)) for _ in range(r.randint(1, 4)))]
    keeps = r.random() < 0.3

    def fn(x: Any) -> Any:
        seen = []
        for name in names:
            x = OPS[name](x)
            seen.append(x)
        return (x, seen, x.shape) if keeps else x

    return fn, names


def argument(seed: int, k: int) -> torch.Tensor:
    """Of which some elements are chosen, none, one, or all."""
    torch.manual_seed(seed * 7 + k)
    x = torch.randn(*random.Random(seed * 7 + k).choice([(4, 5), (4, 5), (3, 2)]))
    if k in (1, 2):
        x = -x.abs() - 0.1
    if k == 2:
        x[1, 1] = 2.0
    return x.abs() + 0.4 if k == 3 else x


def compared(seed: int, calls: int = 6) -> int:
    """How often a program breaks that does what it does plainly."""
    fn, names = program(seed)
    frameloom.reset()
    jitted = jit_for_test(fn)
    with torch.no_grad():
        for k in range(calls):
            given = (argument(seed, k),)
            want, got = observe(fn, given, {}), observe(jitted, given, {})
            assert_same_call(got, want, f"program {seed} ({names}), call {k}: ", 1e-4, 1e-4)
    return len(jitted.explanation.breaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    whole = wrong = 0
    for seed in range(options.first, options.first + options.programs):
        try:
            whole += compared(seed) == 0
        except AssertionError as error:
            wrong += 1
            print(str(error)[:400], flush=True)
    print(f"{options.programs} programs, {wrong} wrong, {whole} without a break")


if __name__ == "__main__":
    main()
