"""Programs under autocast that change their weights, with breaks, other modes and regions inside of regions: drawn from a seed."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from frameloom import jit
from frameloom.capture.tensors.cast_cache import REGION

REGIONS = ("", "", "", "", "enabled=False", "cache_enabled=False")
MODES = ("torch.no_grad()", "torch.inference_mode()", "torch.enable_grad()")
STATEMENTS = ("cast", "cast", "cast", "change", "change", "break", "break", "other", "clear", "named", "region", "mode", "step")  # fmt: skip
HEAD = """\
def fn(x, w, v, seen):
"""


class Draw:
    """The text of a function, and how it is called."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.lines: list[str] = []
        self.block(1, self.choose.choice((2, 4, 6, 9)), self.choose.random() < 0.7)
        self.text = HEAD + "\n".join(self.lines) + "\n"
        self.around = self.choose.choice(("", "region", "region", "off"))
        self.calls = [self.choose.choice(("call", "call", "change", "plain", "leave")) for _ in range(8)]  # fmt: skip

    def block(self, depth: int, count: int, in_region: bool) -> None:
        if in_region:
            self.say(depth, f"with region({self.choose.choice(REGIONS)}):")
            depth += 1
        for _ in range(count):
            self.statement(depth)

    def say(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def statement(self, depth: int) -> None:
        kind = self.choose.choice(STATEMENTS)
        name = self.choose.choice("wwv")
        if kind == "cast":
            self.say(depth, f"seen.append(x @ {name})")
        elif kind == "change":
            self.say(depth, f"change({name})")
        elif kind == "break":
            self.say(depth, "interrupted()")
        elif kind == "other":
            self.say(depth, f"x = x + (x * {name}.sum()).tanh()")
        elif kind == "clear":
            self.say(depth, "torch.clear_autocast_cache()")
        elif kind == "named":
            self.say(depth, f"seen.append(x.bfloat16() @ {name}.to(torch.bfloat16))")
        elif kind == "step":
            self.say(depth, f"net_{name}(x, seen)")
        elif depth >= 4:
            self.say(depth, "pass")
        else:
            if kind == "mode":
                self.say(depth, f"with {self.choose.choice(MODES)}:")
                depth += 1
            self.block(depth, self.choose.choice((1, 2, 3)), kind == "region")


def region(**how: Any) -> Any:
    return torch.autocast("cpu", torch.bfloat16, **how)


def _seen(draw: Draw, wrap: Callable[[Any], Any]) -> list[torch.Tensor]:
    w, v = ((torch.arange(9.0).reshape(3, 3) / s - 0.5).requires_grad_() for s in (8, 11))
    x = torch.arange(6.0).reshape(2, 3) / 4

    def change(w: torch.Tensor) -> None:
        with torch.no_grad():
            w.add_(1)

    def net(w: torch.Tensor) -> Any:
        def apply(x: torch.Tensor, seen: list[torch.Tensor]) -> None:
            y = torch.nn.functional.linear(x, w)
            interrupted()
            seen.append(torch.nn.functional.linear(y, w))

        return apply

    def interrupted() -> None:
        gc.isenabled()

    space = {"torch": torch, "region": region, "change": change, "interrupted": interrupted, "net_w": net(w), "net_v": net(v)}  # fmt: skip
    exec(draw.text, space)
    f, seen = wrap(space["fn"]), []
    calls = iter(draw.calls * 2)
    call: str | None = "leave"
    while call is not None:
        around = region(cache_enabled=draw.around != "off")
        with around if draw.around else contextlib.nullcontext():
            while (call := next(calls, None)) not in (None, "leave"):
                if call == "call":
                    f(x, w, v, seen)
                elif call == "change":
                    change(w)
                elif draw.around:
                    seen.append(x @ w)
    seen = [t.clone() if t.is_inference() else t for t in seen]
    followed = [t for t in seen if t.requires_grad]
    if followed:
        torch.autograd.backward([t.float().sum() * (k % 3 + 1) for k, t in enumerate(followed)])
    return [*seen, w.detach(), v.detach(), *(p.grad for p in (w, v) if p.grad is not None)]


@torch.enable_grad()
def sweep_casts(seeds: range) -> Iterator[str]:
    for seed in seeds:
        draw = Draw(seed)
        REGION.changes = False
        try:
            want: Any = _seen(draw, lambda fn: fn)
        except RuntimeError:  # of inference mode
            continue
        try:
            got: Any = _seen(draw, jit)
        except RuntimeError as error:
            yield f"{seed}: {error}\n{draw.text}{draw.around} {draw.calls}"
            continue
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            alike = a.dtype == b.dtype and a.requires_grad == b.requires_grad
            if not alike or not torch.allclose(a.float(), b.float(), 0.02, 0.02, equal_nan=True):
                yield f"{seed}: result {k} of {len(want)}\n{draw.text}{draw.around} {draw.calls}"
                break
