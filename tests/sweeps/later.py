"""Python code that autograd calls in the backward pass (checkpointed functions, `backward` of autograd Functions, hooks): it finds what closures, items,
attributes and globals hold by then.

`sweep_later(seed, count)` tells which drawn programs differ from eager.  A program puts something in a place, hands over code that reads it there, and
puts something else there: at once, behind a graph break, or in the next round of a loop.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import torch

import frameloom
from tests.fuzz.interpret import interpreted

# Where something is held: how it is put there, how it is read.
PLACES = {
    "closure": ("v = {}", "v"),
    "item": ("box[0] = {}", "box[0]"),
    "given item": ("given[0] = {}", "given[0]"),
    "key": ("table['v'] = {}", "table['v']"),
    "attribute": ("own.v = {}", "own.v"),
    "given attribute": ("module.v = {}", "module.v"),
    "class attribute": ("Own.v = {}", "own.v"),
    "global": ("globals()['G'] = {}", "G"),
    "declared global": ("D = {}", "D"),
    "default": ("v = {}", "d"),
    "argument": ("box[0] = {}", "a"),
    "list that is an argument": ("box[0] = {}", "a[0]"),
    "function": ("f = lambda: {}", "f()"),
    "written closure": ("write({})", "v"),
    "last item": ("box.append({})", "box[-1]"),
    "mode": ("module.train({} is not None and len(str({})) > 3)", "(x if module.training else 3)"),
}
HELD = ("x * 2", "x", "2.0", "x.detach() + 1", "3", "k + 0.5", "x.sum()", "torch.ones(2, 2)")
BODIES = ("q * {}", "(q * {}).sin()", "q.exp() + q * {}", "(q * {0}) * {0}", "q * q if isinstance({}, float) else q.tanh()")  # fmt: skip
CODES = {
    "checkpoint": "o = checkpoint(fn, o, use_reentrant=False)",
    "reentrant": "o = checkpoint(fn, o, use_reentrant=True)",
    "checkpoint with keywords": "o = checkpoint(fn, q=o, use_reentrant=False)",
    "partial": "o = checkpoint(functools.partial(fn), o, use_reentrant=False)",
    "nested": "o = checkpoint(lambda r: checkpoint(fn, r.cos(), use_reentrant=False) * 2, o, use_reentrant=False)",
    "called": "o = called(fn, o)",
    "in a block": "with Block(o):\n{0}    o = checkpoint(fn, o, use_reentrant=False)",
    "with a handler": "try:\n{0}    o = Calls.apply(o, fn)\n{0}except ValueError:\n{0}    o = None",
    "function": "o = Calls.apply(o, fn)",
    "function of the module": "o = Calls.apply(o, lambda q: fn(q).detach())",
    "hook": "o = o * 2; o.register_hook(fn)",
    "saved": "with saved_tensors_hooks(lambda t: t, fn):\n{0}    o = o.sin()",
}
CHANGES = ("", "{0}", "print(end='')\n{0}", "o = o * 2\n{0}", "o.sum().backward()\n{0}", "{0}\no.sum().backward()", "print(end='')\n{0}\no.sum().backward()")  # fmt: skip
AROUND = """
def made_function(module, given):
    def program(x, o):
        box, table, own, v = [None], {{}}, Own(), None
        def write(value):
            nonlocal v
            v = value
        def called(fn, o):
            return checkpoint(fn, o, use_reentrant=False)
        global D
        f = None
{body}
        return o * 1
    return program
"""


class Calls(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, fn: Any) -> torch.Tensor:
        ctx.fn = fn
        return q * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return ctx.fn(gradient), None


class Own:
    v: Any = None


class Block:
    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> bool:
        return len(self.owner.shape) > 9


class Drawn:
    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.place, self.code = draw.choice([*PLACES]), draw.choice([*CODES])
        put, read = PLACES[self.place]
        first, second = draw.choice(HELD), draw.choice(HELD)
        arguments = {"default": "q, d=v", "argument": "q, a=box[0]", "list that is an argument": "q, a=box"}.get(self.place, "q")  # fmt: skip
        again = draw.choice(CHANGES).format(put.format(second, second) if draw.random() < 0.8 else "pass")  # fmt: skip
        lines = [
            put.format(first, first),
            f"fn = lambda {arguments}: {draw.choice(BODIES).format(read)}",
            CODES[self.code].format(""),
            *again.split("\n"),
        ]
        lines = [part for line in lines for part in line.split("\n")]
        rounds = draw.choice((1, 1, 2, 3))
        body = [f"for k in range({rounds}):", *(f"    {line}" for line in lines)]
        self.text = AROUND.format(body="\n".join(f"        {line}" for line in body))
        self.how = draw.choice(({}, {}, {"dynamic": True}, {"backend": "eager"}))

    def function(self) -> Any:
        names: dict[str, Any] = {
            "torch": torch,
            "checkpoint": torch.utils.checkpoint.checkpoint,
            "saved_tensors_hooks": torch.autograd.graph.saved_tensors_hooks,
            "functools": __import__("functools"),
            "Calls": Calls,
            "Block": Block,
            "Own": type("Own", (Own,), {}),
        }
        exec(compile(self.text, f"<program {id(self)}>", "exec"), names)
        return names["made_function"](torch.nn.Module(), [None])

    def seen(self, fn: Any, size: int) -> list[Any]:
        x = torch.linspace(-1, 2, size * 2).view(2, size)[:, :2].clone().requires_grad_()
        o = torch.linspace(0.5, 1, 4).view(2, 2).requires_grad_()
        seen: list[Any] = []
        try:
            seen += [t := fn(x, o * 1)]
            t.sum().backward()
        except RuntimeError as error:
            seen.append(f"{type(error).__name__}: {str(error)[:60]}")
        return [*seen, x.grad, o.grad]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    return type(a) is type(b) and a == b  # type: ignore[no-any-return]


def sweep_later(seed: int = 0, count: int = 1000) -> Iterator[str]:
    with warnings.catch_warnings(), interpreted(), torch.enable_grad():
        warnings.simplefilter("ignore")
        for k in range(seed, seed + count):
            program = Drawn(k)
            frameloom.reset()
            plain, jitted = program.function(), frameloom.jit(program.function(), **program.how)
            for size in (2, 3):
                expected = program.seen(plain, size)
                try:
                    found = program.seen(jitted, size)
                except Exception as error:
                    found = [repr(error)]
                if not _same(found, expected):
                    yield f"{k}: {program.text}\n{program.how}, size {size}: {found} for {expected}"
                    break
