"""Random programs whose sizes the data decides: `python -m tests.jit.numbers.random_data --programs 500` compares each with plain calls."""

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


# --- what is done with a program

Function = Callable[[Any], Any]


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    return [t for v in value for t in tensors_in(v)] if isinstance(value, list | tuple) else []


def loss_of(value: Any) -> Any:
    parts = tensors_in(value)
    return sum((t * torch.linspace(-1, 1, t.numel()).view(t.shape)).sum() for t in parts)


def leaf_of(x: Any) -> Any:
    return x.double().requires_grad_()


def gradient(result: Any, x: Any, **options: Any) -> Any:
    loss = loss_of(result)
    if not isinstance(loss, torch.Tensor):
        return None
    # How it lies in memory is up to the order in which autograd adds.
    return torch.autograd.grad(loss, x, **options)[0].contiguous()


def differentiated(f: Function, x: Any) -> Any:
    x = leaf_of(x)
    made = f(x)
    return made, gradient(made, x)


def twice(f: Function, x: Any) -> Any:
    x = leaf_of(x)
    made = f(x.sin())
    first = gradient(made, x, create_graph=True)
    return made, first, None if first is None or not first.requires_grad else gradient(first, x)


def written_before(f: Function, x: Any) -> Any:
    x.mul_(1.25)
    return f(x)


def written_behind(f: Function, x: Any) -> Any:
    made = f(x)
    x.add_(1)
    return made


def written_in_between(f: Function, x: Any) -> Any:
    first = f(x)
    x[x > 1] -= 0.5
    return first, f(x)


# Name -> what calls the jitted program, what is jitted with it.
USES: dict[str, tuple[Any, Any]] = {
    "called": (None, None), "differentiated": (differentiated, None), "twice": (twice, None), "step": (None, differentiated),
    "written before": (None, written_before), "written behind": (None, written_behind), "written": (None, written_in_between),
}  # fmt: skip


def use_of(seed: int) -> str:
    return random.Random(seed * 3).choice([*USES, "called", "differentiated"])


def compared(seed: int, calls: int = 6, use: str = "called") -> int:
    """How often a program breaks that does what it does plainly."""
    fn, names = program(seed)
    outside, inside = USES[use]
    whole = fn if inside is None else lambda x: inside(fn, x)
    frameloom.reset()
    jitted = jit_for_test(whole)
    called = [f if outside is None else lambda x, f=f: outside(f, x) for f in (whole, jitted)]
    for k in range(calls):
        given = (argument(seed, k),)
        grad = use in ("differentiated", "twice", "step")
        want, got = (observe(f, given, {}, grad=grad) for f in called)
        where = f"program {seed} ({names}, {use}), call {k}: "
        assert_same_call(got, want, where, 1e-4, 1e-4)
    return len(jitted.explanation.breaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--use", choices=list(USES), help="default: any")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    whole = wrong = 0
    for seed in range(options.first, options.first + options.programs):
        try:
            whole += compared(seed, use=options.use or use_of(seed)) == 0
        except Exception as error:
            wrong += 1
            print(f"{seed}: {type(error).__name__}: {error!s:.400}", flush=True)
    print(f"{options.programs} programs, {wrong} wrong, {whole} without a break")


if __name__ == "__main__":
    main()
