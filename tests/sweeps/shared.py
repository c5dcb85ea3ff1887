"""Results that share memory: what `_base` and autograd know of them, and what becomes of a later write to one of them.

`sweep_shared(seed, count)` tells which drawn programs differ from eager.  A program makes a tensor, writes to it in one of many ways, and returns views of
it that were made before or behind that.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import frameloom

Of = Callable[[torch.Tensor], Any]


def row_without_gradients(t: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return t[0]


def written_without_gradients(t: torch.Tensor) -> None:
    with torch.no_grad():
        t[0].mul_(2)


MADE: dict[str, Of] = {
    "sum": lambda x: x + 1,
    "clone": lambda x: x.clone(),
    "product": lambda x: x @ x,
    "zeros": lambda x: torch.zeros_like(x),
    "written result": lambda x: (x * 1).relu_(),
    "sorted": lambda x: x.sort()[0],
    "behind a break": lambda x: x.unsafe_chunk(2)[0] + 0,
    "input": lambda x: x,
    "rows of the input": lambda x: x[1:],
    "the input transposed": lambda x: x.t(),
    "rows of a result": lambda x: torch.cat([x, x])[2:6],
    "a piece of a result": lambda x: (x * 2).chunk(2)[0],
    "a result in its shape": lambda x: x.reshape(-1).sin().view_as(x),
}
WRITES: dict[str, Of] = {
    "none": lambda t: None,
    "one dimension more": lambda t: t.unsqueeze(0)[0].add_(1),
    "none fewer": lambda t: t.squeeze(-1).mul_(2),
    "flat": lambda t: t.view(-1)[:2].zero_(),
    "transposed": lambda t: t.t()[0].fill_(3),
    "diagonal": lambda t: t.diagonal().add_(1),
    "part": lambda t: t[1:].neg_(),
    "data": lambda t: t.data.mul_(2),
    "detached": lambda t: t.detach()[0].mul_(2),
    "without gradients": written_without_gradients,
    "piece": lambda t: t.chunk(2)[0].mul_(2),
    "twice": lambda t: (t[0].mul_(2), t.view(-1)[1:].neg_()),
    "then a break": lambda t: (t.unsqueeze(0)[0].add_(1), frameloom.graph_break()),
    "around a break": lambda t: (t[0].add_(1), frameloom.graph_break(), t[0].mul_(2)),
    "whole": lambda t: t.view(-1).copy_(torch.arange(t.numel())),
}
VIEWS: dict[str, Of] = {
    "itself": lambda t: t,
    "row": lambda t: t[0],
    "row of rows": lambda t: t[1:][0],
    "row without gradients": row_without_gradients,
    "row, detached": lambda t: t[0].detach(),
    "transposed": lambda t: t.t(),
    "flat": lambda t: t.view(-1),
    "every other": lambda t: t.view(-1)[::2],
    "reshaped": lambda t: t.reshape(-1),
    "contiguous": lambda t: t.t().contiguous(),
    "other numbers": lambda t: t.view(torch.int32),
    "detached": lambda t: t.detach(),
    "data": lambda t: t.data,
    "piece": lambda t: t.chunk(2)[1],
    "expanded": lambda t: t.expand(2, *t.shape),
    "product": lambda t: t * 2,
}
# Of which the program has no tensor that they are views of.
HIDDEN = ("rows of a result", "a piece of a result", "a result in its shape")


class Drawn:
    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.made, self.write = draw.choice([*MADE]), draw.choice([*WRITES])
        self.views = draw.choices([*VIEWS], k=draw.choice((1, 2, 2, 3)))
        self.early, self.grad, self.mode = (draw.random() < p for p in (0.3, 0.5, 0.7))
        self.how = draw.choice(({}, {"dynamic": True}, {"backend": "eager"}))
        self.unbacked = draw.choice(((), (0,), (1,), (0, 1)))
        # What is written and has a history is a node's result, which is no view.
        self.tells_bases = not (self.grad and self.write != "none" and self.made in HIDDEN)

    def __str__(self) -> str:
        words = [self.made, self.write, self.views, self.how, self.unbacked]
        flags = [k for k in ("early", "grad", "mode") if getattr(self, k)]
        return " | ".join(map(str, [*words, *flags]))

    def fn(self, x: torch.Tensor) -> list[torch.Tensor]:
        t = MADE[self.made](x)
        views = [VIEWS[name](t) for name in self.views] if self.early else []
        WRITES[self.write](t)
        return views or [VIEWS[name](t) for name in self.views]

    def seen(self, fn: Any, size: int) -> list[Any]:
        seen: list[Any] = []
        try:
            self._see(fn, size, seen)
        except RuntimeError as error:
            seen.append(str(error)[:60])
        return seen

    def _see(self, fn: Any, size: int, seen: list[Any]) -> None:
        leaf = x = torch.linspace(-1, 2, size * size).view(size, size)
        if self.grad:
            leaf.requires_grad_()
            x = leaf * 1
        with torch.set_grad_enabled(self.mode):
            results = fn(x)
        versions = [t._version for t in results]
        seen.append(self._known(results, versions, x))
        factor = torch.ones((), requires_grad=True)
        for t in (results[k] for k in self.unbacked if k < len(results)):
            try:
                t.mul_(factor + 1) if t.is_floating_point() else t.add_(1)
            except RuntimeError as error:
                seen.append(str(error)[:60])
        floats = [t for t in results if t.is_floating_point()]
        seen += [t.detach().clone() for t in floats]
        seen.append(self._known(results, versions, x))
        wanted = [(t * torch.arange(1.0, t.numel() + 1).view(t.shape)).sum() for t in floats if t.requires_grad]  # fmt: skip
        if wanted:
            torch.stack(wanted).sum().backward()
        seen += [leaf.grad, factor.grad]

    def _known(self, results: list[torch.Tensor], versions: list[int], x: Any) -> list[Any]:
        return [
            (
                *self._base(t, results, x),
                t._version - version,
                t.shape,
                t.stride(),
                t.storage_offset(),
                t.requires_grad,
                t.is_leaf,
                [t is other for other in results],
                [torch._C._is_alias_of(t, other) for other in results],  # type: ignore[attr-defined]
            )
            for t, version in zip(results, versions, strict=True)
        ]

    def _base(self, t: torch.Tensor, results: list[torch.Tensor], x: torch.Tensor) -> list[Any]:
        if not self.tells_bases:
            return []
        return [t._is_view(), t._base is x, [t._base is other for other in results]]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    return type(a) is type(b) and a == b  # type: ignore[no-any-return]


def sweep_shared(seed: int = 0, count: int = 2000) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(seed, seed + count):
            program = Drawn(k)
            frameloom.reset()
            jitted = frameloom.jit(program.fn, **program.how)
            for size in (4, 5, 5):
                expected = program.seen(program.fn, size)
                try:
                    found = program.seen(jitted, size)
                except Exception as error:
                    found = [repr(error)]
                if not _same(found, expected):
                    yield f"{k}: {program}, size {size}: {found} for {expected}"
                    break
