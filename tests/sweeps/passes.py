"""Backward passes from several results of one graph: which hooks are called with what, what is let go of, and gradients between results.

A program is drawn from a seed: a few ops, the results that are returned, and then hooks, passes from some results in some order, with the graph kept or
not, gradients that are asked for by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from frameloom import jit, reset
from tests.fuzz.interpret import interpreted
from tests.jit.gradients.training import wording

ONE: Sequence[Callable[[Any], Any]] = (
    torch.sin, torch.exp, torch.tanh, torch.Tensor.clone, torch.Tensor.square, F.softplus,
    lambda x: x * 2, lambda x: x + 1, lambda x: x.reshape(2, 2).t().reshape(4), lambda x: x.detach() * x, lambda x: x.cumsum(0),
    lambda x: x.sum().expand(4), lambda x: x[:], lambda x: x.view(2, 2).view(4), lambda x: x.view(1, 4).unbind(0)[0],
)  # fmt: skip
TWO: Sequence[Callable[[Any, Any], Any]] = (
    torch.add, torch.mul, torch.sub, torch.maximum, lambda x, y: torch.cat([x, y])[1:5], lambda x, y: (x.reshape(2, 2) @ y.reshape(2, 2)).reshape(4),
    lambda x, y: torch.lerp(x, y, 0.25),
)  # fmt: skip


WRITES: Sequence[Callable[[Any], Any]] = (
    lambda x: x.mul_(2), lambda x: written(x, x[1:]), lambda x: written(x, x.view(2, 2)[0]), lambda x: x.view(2, 2).view(4).mul_(x.detach()),
    lambda x: x.view(4), lambda x: x.view(2, 2).t().t().reshape(4), lambda x: x.unsqueeze(0)[0],
)  # fmt: skip


VIEWS = {*ONE[8:9], *ONE[11:], TWO[4], *WRITES}


def written(x: Any, part: Any) -> Any:
    part.mul_(3)
    return x


class Drawn:
    """A program, and what is done with its results.  `writes`: it writes to views, too."""

    def __init__(self, seed: int, writes: bool = False) -> None:
        choose = self.choose = random.Random(seed)
        one = (*ONE, *WRITES) if writes else ONE
        self.made = [choose.random() < 0.5 for _ in range(choose.choice((1, 2, 3)))]
        count = len(self.made)
        self.ops: list[tuple[Any, ...]] = []
        for k in range(count, count + choose.choice((2, 3, 4, 6))):
            op = choose.choice(TWO if choose.random() < 0.4 else one)
            self.ops.append((op, *(choose.randrange(k) for _ in range(2 if op in TWO else 1))))
        computed = range(count, count + len(self.ops))
        self.results = choose.sample(computed, min(len(computed), choose.choice((2, 3, 4))))
        self.events = [self._event() for _ in range(choose.choice((2, 3, 4, 6)))]
        self.early = [self._hook() for _ in range(choose.choice((0, 0, 1)))]
        kinds = [event[0] for event in self.events]
        if "twice" in kinds:
            # The second pass goes through no nodes of the graph, where results' hooks wait and something is let go of.
            end = kinds.index("twice")
            early = [e for e in self.events[:end] if not isinstance(e[1], int) or e[1] < count]
            self.events = [*early, self.events[end]]

    def _hook(self) -> tuple[Any, ...]:
        kind = self.choose.choice(("hook", "scale", "retain"))
        return kind, self.choose.randrange(len(self.made) + len(self.results))

    def _event(self) -> tuple[Any, ...]:
        choose = self.choose
        if choose.random() < 0.35:
            return self._hook()
        count = len(self.results)
        some = choose.sample(range(count), choose.choice((1, 1, min(2, count), count)))
        kept = choose.random() < 0.5
        if choose.random() < 0.5:
            return "backward", some, kept
        # What is named lies on the way of every root: others of one node are not told apart.
        ends = [k for k in range(len(self.made) + count) if self._leads_to(some, k)]
        if not ends:
            return "backward", some, kept
        wanted = choose.sample(ends, choose.choice((1, 1, min(2, len(ends)))))
        kind = choose.choice(("grad", "grad", "inputs", "twice"))
        if kind == "inputs" and any(k >= len(self.made) for k in wanted):
            kind = "grad"  # else what made it is called, too
        return kind, some, kept, wanted

    def _leads_to(self, roots: Sequence[int], end: int) -> bool:
        count = len(self.made)
        end = end if end < count else self.results[end - count]
        behind = [self._behind(self.results[k]) for k in roots]
        return all(end in values for values in behind)

    def _behind(self, value: int) -> set[int]:
        operands = self.ops[value - len(self.made)][1:] if value >= len(self.made) else ()
        return {*operands}.union(*map(self._behind, operands))

    def fn(self, *inputs: Any) -> tuple[Any, ...]:
        values = [*inputs]
        for op, *operands in self.ops:
            values.append(op(*(values[k] for k in operands)))
        return tuple(values[k] for k in self.results)

    def seen(self, fn: Callable[..., Any]) -> list[Any]:
        """What the program sees, in order."""
        torch.manual_seed(0)
        leaves = [torch.rand(4).add_(0.1).requires_grad_() for _ in self.made]
        inputs = [t * 1.5 if made else t for t, made in zip(leaves, self.made, strict=True)]
        seen: list[Any] = []
        for kind, k in self.early:
            if k < len(inputs):
                hook(kind, inputs[k], k, seen)
        known = [*inputs, *fn(*inputs)]
        for event in self.events:
            before = len(seen)
            try:
                self._do(event, known, seen)
            except RuntimeError as error:
                # How far it came is up to autograd.
                return [*seen[:before], ("raised", wording(error)[:70])]
            seen.append(("gradients", [copied(t.grad) for t in leaves]))
            seen.append(("retained", [copied(t.grad) for t in known if t.retains_grad]))
        return seen

    def _do(self, event: tuple[Any, ...], known: Sequence[torch.Tensor], seen: list[Any]) -> None:
        kind, what, *rest = event
        if kind in ("hook", "scale", "retain"):
            if what >= len(self.made) or self.made[what]:
                hook(kind, known[what], what, seen)
            return
        roots = [known[len(self.made) + k] for k in what]
        seeds = [torch.linspace(1, 2, 4) * (k + 1) for k in what]
        if kind == "backward":
            torch.autograd.backward(roots, seeds, retain_graph=rest[0])
            return
        wanted = [known[k] for k in rest[1]]
        if kind == "inputs":
            torch.autograd.backward(roots, seeds, retain_graph=rest[0], inputs=wanted)
            return
        again = kind == "twice"
        found = torch.autograd.grad(
            roots, wanted, seeds, retain_graph=rest[0] or again, create_graph=again, allow_unused=True
        )  # fmt: skip
        seen.append((kind, [copied(g) for g in found]))
        if again and any(g is not None and g.requires_grad for g in found):
            sum(g.sum() for g in found if g is not None and g.requires_grad).backward(retain_graph=rest[0])  # type: ignore[union-attr] # fmt: skip


def copied(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def hook(kind: str, tensor: torch.Tensor, name: int, seen: list[Any]) -> None:
    # Of a view whose base was written to, PyTorch has to make the history first: else a hook ends the process.
    if not tensor.requires_grad or (tensor.grad_fn is None and not tensor.is_leaf):
        return
    if kind == "retain":
        tensor.retain_grad()
        return
    factor = 1 if kind == "hook" else 3

    def call(given: Any) -> Any:
        seen.append(("hook", name, copied(given)))
        return None if given is None or factor == 1 else given * factor

    tensor.register_hook(call)


def differs(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) != len(b) or any(map(differs, a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return not torch.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
    return type(a) is not type(b) or bool(a != b)


def same_but_order(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Hooks of views, which are made behind all else, are called in another order."""
    return not differs(_by_hook(a), _by_hook(b))


def _by_hook(seen: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in seen:
        hooks = found[-1][1] if found and found[-1][0] == "hooks" else None
        if entry[0] != "hook":
            found.append(entry)
        elif hooks is None:
            found.append(("hooks", [entry]))
        else:
            hooks.append(entry)
            hooks.sort(key=lambda e: e[1])
    return found


@torch.enable_grad()
def sweep_passes(seeds: Sequence[int] = range(1000), writes: bool = False) -> Iterator[str]:
    for seed in seeds:
        drawn = Drawn(seed, writes)
        try:
            wanted = drawn.seen(drawn.fn)
        except RuntimeError:
            continue
        reset()
        try:
            with interpreted():
                seen = drawn.seen(jit(drawn.fn))
        except Exception as error:
            yield f"{seed}: {type(error).__name__}: {error}"
            continue
        if differs(seen, wanted):
            if any(op in VIEWS for op, *_ in drawn.ops) and same_but_order(seen, wanted):
                continue
            place = next((n for n, (a, b) in enumerate(zip(seen, wanted, strict=False)) if differs(a, b)), -1)  # fmt: skip
            yield f"{seed}: {seen[place]} instead of {wanted[place]}"
