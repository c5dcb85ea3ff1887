"""Strides of results and of gradients where sizes vary between calls and are often 0 or 1: an op or two, of operands of all layouts.

A program is called a few times, with other shapes and layouts each time, so that entries for sizes that vary get sizes of 0 and 1, too.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import frameloom
from tests.fuzz.interpret import interpreted
from tests.fuzz.support import ERRORS, LAYOUTS, tensor

Call = Callable[..., Any]
# A program, its arguments by call (as arguments of `tensor`), `dynamic`, and a title.
Draw = Callable[[random.Random], tuple[Call, list[list[Any]], Any, str]]
SIZES = ((0, 1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2), (2, 3))
DTYPES = ("float32", "float32", "float32", "float64", "bfloat16", "int64", "int16", "bool")
ELEMENTWISE: dict[str, Call] = {
    "x * 2": lambda x, y, z: x * 2,
    "2 - x": lambda x, y, z: 2 - x,
    "x / 2": lambda x, y, z: x / 2,
    "x // 2": lambda x, y, z: x // 2,
    "sin": lambda x, y, z: x.sin(),
    "abs": lambda x, y, z: x.abs(),
    "clone": lambda x, y, z: x.clone(),
    "x + y": lambda x, y, z: x + y,
    "x * y": lambda x, y, z: x * y,
    "x * x": lambda x, y, z: x * x,
    "x * y + z": lambda x, y, z: x * y + z,
    "x + y, x * z": lambda x, y, z: [x + y, x * z],
    "x == y": lambda x, y, z: x == y,
    "maximum": lambda x, y, z: torch.maximum(x, y),
    "where": lambda x, y, z: torch.where(x > 0, y, z),
    "where of a number": lambda x, y, z: torch.where(x > 0, y, 1),
    "masked_fill": lambda x, y, z: x.masked_fill(y > 0, 1),
    "clamp": lambda x, y, z: x.clamp(y, z),
    "clamp to 1": lambda x, y, z: x.clamp(-1, 1),
    "lerp": lambda x, y, z: torch.lerp(x, y, 0.5),
    "lerp of three": lambda x, y, z: torch.lerp(x, y, z),
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z),
    "pow": lambda x, y, z: x**2,
    "pow of a number": lambda x, y, z: 2**x,
    "to double": lambda x, y, z: x.double(),
    "relu": lambda x, y, z: F.relu(x),
    "gelu": lambda x, y, z: F.gelu(x),
    "in place": lambda x, y, z: x.add_(y),
    "x * 1 in place": lambda x, y, z: (x * 1).mul_(y),
    "out=": lambda x, y, z: torch.mul(x, y, out=z),
    "out= of a fresh one": lambda x, y, z: torch.mul(x, y, out=x * 1),
    "out= of another size": lambda x, y, z: torch.add(x, 1, out=z.new_empty(0)),
    "x * row": lambda x, y, z: x * y[..., :1],
    "x * column": lambda x, y, z: x * y[:1],
}  # fmt: skip
OTHERS: dict[str, Call] = {
    "sum": lambda x, y, z: x.sum(0),
    "sum of the last": lambda x, y, z: x.sum(-1),
    "sum kept": lambda x, y, z: x.sum(0, keepdim=True),
    "sum of the last kept": lambda x, y, z: x.sum(-1, keepdim=True),
    "whole": lambda x, y, z: x.sum(),
    "mean": lambda x, y, z: x.mean(-1),
    "amax": lambda x, y, z: x.amax(-1),
    "max": lambda x, y, z: x.max(0),
    "any": lambda x, y, z: x.any(-1),
    "var": lambda x, y, z: x.var(-1),
    "norm": lambda x, y, z: x.norm(dim=-1, keepdim=True),
    "logsumexp": lambda x, y, z: x.logsumexp(0),
    "softmax": lambda x, y, z: x.softmax(-1),
    "cumsum": lambda x, y, z: x.cumsum(0),
    "cummax": lambda x, y, z: x.cummax(0),
    "sort": lambda x, y, z: x.sort(-1),
    "cat": lambda x, y, z: torch.cat([x, y]),
    "cat of the last": lambda x, y, z: torch.cat([x, y], -1),
    "cat of one": lambda x, y, z: torch.cat([x]),
    "stack": lambda x, y, z: torch.stack([x, y]),
    "stack of the last": lambda x, y, z: torch.stack([x, y], -1),
    "flip": lambda x, y, z: x.flip(0),
    "roll": lambda x, y, z: x.roll(1, 0),
    "repeat": lambda x, y, z: x.repeat(2, *[1] * (x.dim() - 1)),
    "tril": lambda x, y, z: x.tril(),
    "pad": lambda x, y, z: F.pad(x, (1, 0)),
    "index_select": lambda x, y, z: x.index_select(0, torch.tensor([0])),
    "index": lambda x, y, z: x[torch.tensor([0, 0])],
    "gather": lambda x, y, z: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "matmul": lambda x, y, z: x @ y.transpose(-1, -2),
    "matmul of x": lambda x, y, z: x @ x.mT,
    "mv": lambda x, y, z: x @ y[0],
    "einsum": lambda x, y, z: torch.einsum("...i,...i->...i", x, y),
    "layer_norm": lambda x, y, z: F.layer_norm(x, x.shape[-1:]),
    "mse": lambda x, y, z: F.mse_loss(x, y, reduction="none"),
    "linear": lambda x, y, z: F.linear(x, y),
    "zeros_like": lambda x, y, z: torch.zeros_like(x),
    "new_zeros": lambda x, y, z: x.new_zeros(x.shape),
    "full_like": lambda x, y, z: torch.full_like(x, 2),
    "contiguous": lambda x, y, z: x.contiguous(),
    "reshape": lambda x, y, z: x.reshape(-1),
    "reshape to rows": lambda x, y, z: x.reshape(x.shape[0], -1),
    "flatten": lambda x, y, z: x.flatten(),
    "split": lambda x, y, z: [*x.split(1)],
    "chunk": lambda x, y, z: [*(x * 2).chunk(2, -1)],
    "unbind": lambda x, y, z: [*x.unbind(-1)],
    "diagonal": lambda x, y, z: x.diagonal(),
    "tanh_ of a part": lambda x, y, z: (x.clone()[:1].tanh_(), x)[1],
    "copy_": lambda x, y, z: x.copy_(y),
    "copy into a part": lambda x, y, z: (u := x * 1, u[:1].copy_(y[:1]))[0],
    "view_as_real": lambda x, y, z: torch.view_as_real(torch.complex(x, y)),
    "as one": lambda x, y, z: x,
}  # fmt: skip
TABLE = {**ELEMENTWISE, **OTHERS}
# Before and behind the op.
VIEWS: dict[str, Call] = {
    "": lambda x: x,
    ".t": lambda x: x.transpose(0, -1),
    "[1:]": lambda x: x[1:],
    "[:1]": lambda x: x[:1],
    "[..., 1:]": lambda x: x[..., 1:],
    "[..., ::2]": lambda x: x[..., ::2],
    "[None]": lambda x: x[None],
    "[..., None]": lambda x: x[..., None],
    "[:, None]": lambda x: x[:, None],
    "expand": lambda x: x.expand(2, *x.shape),
    "[0]": lambda x: x[0],
    "* 1": lambda x: x * 1,
    "narrow": lambda x: x.narrow(0, 0, 1),
    "squeeze": lambda x: x.squeeze(),
    "squeeze 0": lambda x: x.squeeze(0),
    "movedim": lambda x: x.movedim(0, -1),
    "view": lambda x: x.view(x.shape),
}  # fmt: skip


def drawn(choose: random.Random) -> tuple[Call, list[list[Any]], Any, str]:
    table = ELEMENTWISE if choose.random() < 0.5 else OTHERS
    name = choose.choice([*table])
    plain = choose.random() < 0.4
    before, behind = (choose.choice(("", "", *VIEWS)) if not plain else "" for _ in range(2))
    second = choose.choice([*TABLE]) if choose.random() < 0.2 else None

    def fn(*args: torch.Tensor) -> Any:
        x, *others = args
        x = VIEWS[before](x)
        y = TABLE[name](x, *others)
        if isinstance(y, torch.Tensor):
            y = VIEWS[behind](y)
            if second is not None:
                y = TABLE[second](y, *others)
        return y

    rank, sizes = choose.choice((1, 2, 2, 2, 3, 3)), choose.choice(SIZES)
    dtypes = [choose.choice(DTYPES[: choose.choice((1, 3, 8))]) for _ in range(3)]
    grads = (
        [choose.choice(("leaf", "made", "")) for _ in range(3)]
        if choose.random() < 0.6
        else [""] * 3
    )
    lies = [choose.choice(LAYOUTS) for _ in range(3)]
    moving = choose.random() < 0.5
    steps = []
    for _ in range(3):
        base = [choose.choice(sizes) for _ in range(rank)]
        step = []
        for k in range(3):
            shape = [1 if choose.random() < 0.1 else n for n in base]
            how = choose.choice(LAYOUTS) if moving else lies[k]
            step.append((shape, dtypes[k], k, how, grads[k]))
        steps.append(step)
    dynamic = choose.choice((None, True))
    title = f"{before} {name} {behind} {second or ''} {dtypes} {grads} dynamic={dynamic}"
    return fn, steps, dynamic, title


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in _leaves(v)] if isinstance(value, list | tuple) else []


def _facts(t: torch.Tensor | None) -> Any:
    return None if t is None else (str(t.dtype)[6:], tuple(t.shape), t.stride(), t.storage_offset())


def seen(fn: Call, step: Sequence[Any], k: int) -> list[Any]:
    """What is said of results, arguments and gradients."""
    leaves, args = [], []
    for shape, dtype, seed, layout, grad in step:
        made = tensor(shape, dtype, seed, layout)
        if grad and made.is_floating_point():
            made = made.detach().requires_grad_()
            leaves.append(made)
            if grad == "made":
                made = made * 1
                made.retain_grad()
                leaves.append(made)
        args.append(made)
    try:
        results = _leaves(fn(*args))
    except ERRORS as error:
        return [type(error).__name__]
    said = [("result", *map(_facts, (*results, *args)))]
    memory = [t.untyped_storage()._cdata for t in (*results, *args)]
    said.append(("shared", *(memory.index(m) for m in memory)))
    with_history = [r for r in results if r.requires_grad]
    if with_history:
        try:
            if k % 2:
                torch.autograd.backward([r.sum() for r in with_history])
            else:
                torch.autograd.backward(
                    with_history, [torch.ones(r.shape, dtype=r.dtype) for r in with_history]
                )
        except ERRORS as error:
            return [*said, type(error).__name__]
        said.append(("gradient", *(_facts(t.grad) for t in leaves)))
    return said


def differences(draw: Draw, seed: int) -> Iterator[str]:
    fn, steps, dynamic, title = draw(random.Random(seed))
    frameloom.reset()
    jitted = frameloom.jit(fn, dynamic=dynamic)
    for k, step in enumerate(steps):
        wanted = seen(fn, step, k)
        found = seen(jitted, step, k)
        for a, b in zip(found, wanted, strict=False):
            if a != b:
                kinds = [(m, n) for m, n in zip(a, b, strict=False) if m != n]
                yield f"{seed}: {title}, call {k}: {b[0]} {kinds[0]}"
                return


def sweep_drawn(draw: Draw, seeds: Sequence[int]) -> Iterator[str]:
    with torch.enable_grad(), interpreted(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            try:
                yield from differences(draw, seed)
            except Exception as error:
                yield f"{seed}: {type(error).__name__}: {str(error)[:300]}"


def sweep_strides(seeds: Sequence[int] = range(1000)) -> Iterator[str]:
    return sweep_drawn(drawn, seeds)
