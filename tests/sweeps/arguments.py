"""Single calls with drawn arguments, on tensors of few elements: sizes 0 and 1, crops of all there is, windows wider than the image, places beyond the end.

`sweep_arguments(seed, count)` tells which differ from eager: in values, dtypes, sizes, strides of what has more than one element, gradients, or exceptions.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import frameloom
from tests.fuzz.interpret import interpreted

Call = Callable[[torch.Tensor], Any]
CALLS: dict[str, Callable[[Draw], tuple[Call, torch.Tensor]]] = {}
REDUCTIONS = "sum mean amax amin any all std var logsumexp nansum nanmean".split()
ALONG = "prod median nanmedian argmax argmin max min mode".split()
SCANS = "cumsum cumprod cummax logcumsumexp softmax sort argsort".split()
RESIZING = {
    1: ["nearest", "linear", "area", "nearest-exact"],
    2: ["nearest", "bilinear", "bicubic", "area"],
    3: ["nearest", "trilinear", "area"],
}


class Draw(random.Random):
    """Draws sizes, dimensions and tensors."""

    def sizes(self, count: int, low: int = 0, high: int = 4) -> list[int]:
        return [self.randint(low, high) for _ in range(count)]

    def dim(self, count: int) -> int:
        return self.randint(-count, count - 1) if count else 0

    def flag(self) -> bool:
        return self.random() < 0.5

    def tensor(self, low: int = 1, high: int = 3) -> torch.Tensor:
        return numbers(*self.sizes(self.randint(low, high)))

    def image(self, count: int, least: int = 1) -> torch.Tensor:
        return numbers(self.randint(1, 2), self.randint(1, 2), *self.sizes(count, least, 6))


def numbers(*sizes: int) -> torch.Tensor:
    count = torch.Size(sizes).numel()
    return ((torch.arange(count) * 7 % 11).float() - 4).div(2).view(sizes)


def call(make: Any) -> Any:
    CALLS[make.__name__] = make
    return make


@call
def pad(d: Draw) -> Any:
    x = d.tensor(1, 4)
    amounts = d.sizes(2 * d.randint(1, x.dim()), -3, 3)
    return lambda x: F.pad(x, amounts, value=1.5), x


@call
def pad_from_the_image(d: Draw) -> Any:
    count, mode = d.randint(1, 3), d.choice(["reflect", "replicate", "circular"])
    # Eager leaves memory unwritten where a circular pad crops.
    amounts = d.sizes(2 * count, 0 if mode == "circular" else -2, 3)
    return lambda x: F.pad(x, amounts, mode) * 2, d.image(count)


@call
def windows(d: Draw) -> Any:
    x = d.tensor()
    dim, size, step = d.dim(x.dim()), d.randint(0, 4), d.randint(0, 3)
    return lambda x: x.unfold(dim, size, step) + 1, x


@call
def part(d: Draw) -> Any:
    x = d.tensor()
    dim, start, length = d.dim(x.dim()), d.randint(-3, 4), d.randint(-1, 4)
    return lambda x: x.narrow(dim, start, length) * 2, x


@call
def roll(d: Draw) -> Any:
    x = d.tensor()
    dims = d.sample(range(x.dim()), d.randint(1, x.dim()))
    shifts = d.sizes(len(dims), -9, 9)
    return lambda x: x.roll(shifts, dims), x


@call
def pool(d: Draw) -> Any:
    count, kernel, stride = d.randint(1, 3), d.randint(1, 4), d.choice([None, 1, 2, 3])
    padding, ceil, all_count = d.randint(0, 2), d.flag(), d.flag()
    if d.flag():
        average = getattr(F, f"avg_pool{count}d")
        return lambda x: average(x, kernel, stride, padding, ceil, all_count), d.image(count)
    largest = getattr(F, f"max_pool{count}d")
    return lambda x: largest(x, kernel, stride, padding, 1, ceil), d.image(count)


@call
def adaptive_pool(d: Draw) -> Any:
    count = d.randint(1, 3)
    fn = getattr(F, f"adaptive_{d.choice(['avg', 'max'])}_pool{count}d")
    sizes = d.sizes(count, 1, 5)
    return lambda x: fn(x, sizes), d.image(count)


@call
def convolution(d: Draw) -> Any:
    count, groups = d.randint(1, 2), d.randint(1, 2)
    x, w = numbers(d.randint(0, 2), 2 * groups, *d.sizes(count, 1, 5)), numbers(2 * groups, 2, *d.sizes(count, 1, 3))  # fmt: skip
    stride, padding, dilation = d.randint(1, 3), d.choice([0, 1, 2, "same"]), d.randint(1, 2)
    fn = getattr(F, f"conv{count}d")
    return lambda x: F.silu(fn(x, w, None, stride, padding, dilation, groups)), x


@call
def transposed_convolution(d: Draw) -> Any:
    count = d.randint(1, 2)
    x, w = numbers(2, 2, *d.sizes(count, 1, 4)), numbers(2, 3, *d.sizes(count, 1, 3))
    stride, padding, more, dilation = d.randint(1, 3), d.randint(0, 2), d.randint(0, 2), d.randint(1, 2)  # fmt: skip
    fn = getattr(F, f"conv_transpose{count}d")
    return lambda x: F.silu(fn(x, w, None, stride, padding, more, 1, dilation)), x


@call
def columns(d: Draw) -> Any:
    kernel, dilation, padding, stride = (d.randint(low, high) for low, high in ((1, 3), (1, 2), (0, 2), (1, 2)))  # fmt: skip
    return lambda x: F.unfold(x, kernel, dilation, padding, stride) + 1, d.image(2)


@call
def resized(d: Draw) -> Any:
    count = d.randint(1, 3)
    mode = d.choice(RESIZING[count])
    options: dict[str, Any] = {"mode": mode}
    if "linear" in mode or mode == "bicubic":
        options["align_corners"] = d.choice([None, True, False])
    if d.flag():
        options["size"] = d.sizes(count, 1, 6)
    else:
        options["scale_factor"] = d.choice([0.4, 0.5, 1.0, 1.3, 2.0, 3.7])
        options["recompute_scale_factor"] = d.choice([None, True, False])
    return lambda x: F.interpolate(x, **options), d.image(count)


@call
def diagonals(d: Draw) -> Any:
    fn = getattr(torch, d.choice(["diag", "tril", "triu", "diagonal", "diag_embed", "diagflat"]))
    offset = d.randint(-4, 4)
    return lambda x: fn(x, offset) * 2, d.tensor()


@call
def reduction(d: Draw) -> Any:
    x = d.tensor(0)
    name, dim, keeps = d.choice(REDUCTIONS + ALONG + SCANS), d.dim(x.dim()), d.flag()
    fn = getattr(torch, name)
    if name in REDUCTIONS:
        return lambda x: fn(x, dim, keepdim=keeps), x
    return (lambda x: fn(x, dim, keeps)) if name in ALONG else (lambda x: fn(x, dim)), x


@call
def norm(d: Draw) -> Any:
    x = d.tensor(0)
    order = d.choice([0, 1, 2, 3, -1, float("inf"), -float("inf"), 0.5])
    dim, keeps = d.dim(x.dim()), d.flag()
    return lambda x: torch.linalg.vector_norm(x, order, dim, keeps), x


@call
def largest(d: Draw) -> Any:
    x = d.tensor()
    fn, k, dim = d.choice([torch.topk, torch.kthvalue]), d.randint(0, 3), d.dim(x.dim())
    return lambda x: fn(x, k, dim)[0], x


@call
def shape(d: Draw) -> Any:
    sizes = [d.choice([-1, 0, 1, 2, 3, 4, 6]) for _ in range(d.randint(0, 3))]
    name = d.choice(["reshape", "expand", "repeat", "tile", "view", "broadcast_to"])
    return lambda x: getattr(x, name)(sizes) + 1, d.tensor(0)


@call
def dimensions(d: Draw) -> Any:
    a, b = d.randint(-3, 3), d.randint(-3, 3)
    name = d.choice(["flatten", "movedim", "swapaxes", "squeeze", "unsqueeze"])
    given = (a, b) if name in ("flatten", "movedim", "swapaxes") else (a,)
    return lambda x: getattr(x, name)(*given) + 1, d.tensor(0)


@call
def index(d: Draw) -> Any:
    def end() -> int | None:
        return d.choice([None, d.randint(-6, 6)])

    x, writes = d.tensor(), d.flag()
    kinds = [slice(end(), end(), d.choice([None, 1, 2, 3])), d.randint(-5, 5), None, Ellipsis, d.sizes(d.randint(0, 3), -2, 2)]  # fmt: skip
    given = tuple(d.choice(kinds) for _ in range(d.randint(1, x.dim() + 1)))

    def fn(x: torch.Tensor) -> Any:
        y = x.clone()
        if writes:
            y[given] = 7.0
        return y if writes else y[given] * 2

    return fn, x


@call
def parts(d: Draw) -> Any:
    x = d.tensor()
    name, dim = d.choice(["split", "chunk", "tensor_split"]), d.dim(x.dim())
    given: Any = d.randint(-1, 6)
    if name != "chunk" and d.flag():
        given = d.sizes(d.randint(0, 3), -2, 4)
    return lambda x: [p + 1 for p in getattr(x, name)(given, dim)], x


@call
def places(d: Draw) -> Any:
    x = d.tensor()
    dim = d.dim(x.dim())
    sizes = [d.randint(0, max(n, 1)) for n in x.shape]
    at = torch.arange(torch.Size(sizes).numel()).view(sizes) * 5 % max(x.shape[dim], 1)
    values, how = torch.full(sizes, 2.0), d.choice(["sum", "prod", "mean", "amax", "amin"])
    fns: list[Call] = [
        lambda x: x.gather(dim, at) * 2,
        lambda x: x.scatter(dim, at, 3.0),
        lambda x: x.scatter_add(dim, at, values),
        lambda x: x.scatter_reduce(dim, at, values, how),
        lambda x: x.index_select(dim, at.flatten()[:3]) * 2,
        lambda x: x.index_fill(dim, at.flatten()[:3], 5.0),
        lambda x: x.take_along_dim(at, dim),
    ]
    return d.choice(fns), x


@call
def made(d: Draw) -> Any:
    a, b, step = (d.choice([-3, -1, 0, 1, 2, 3, 5, 0.5, -0.5, 2.5]) for _ in range(3))
    count, offset = d.randint(-1, 5), d.randint(-3, 3)
    fns: list[Call] = [
        lambda x: torch.arange(a, b, step) + x.sum(),
        lambda x: torch.linspace(a, b, count) + x.sum(),
        lambda x: torch.eye(count, 3) + x.sum(),
        lambda x: torch.tril_indices(count, 3, offset) * 2,
        lambda x: F.one_hot(x.flatten().long().abs(), count) * 2,
        lambda x: torch.cartesian_prod(x.flatten()[:3], x.flatten()[:2]) * 2,
    ]
    return d.choice(fns), d.tensor()


@call
def product(d: Draw) -> Any:
    other = d.tensor(1, 4)
    fn = d.choice([torch.matmul, torch.outer, torch.dot, torch.mv, torch.bmm, torch.kron, torch.inner])  # fmt: skip
    return lambda x: fn(x, other) * 2, d.tensor(1, 4)


def outcome(fn: Call, given: torch.Tensor, order: int, follows: bool) -> Any:
    """Kinds of the results, and these with the gradient; or the exception."""
    x = given.clone()
    if order == 1:
        x = torch.stack([x, x], -1)[..., 0]
    elif order == 2 and x.dim():
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    x.requires_grad_(follows)
    try:
        made = fn(x)
        results = [*made] if isinstance(made, list | tuple) else [made]
        if any(r.requires_grad for r in results):
            sum(r.square().sum() for r in results if r.requires_grad).backward()
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return type(error), str(error)
    kinds = [(r.dtype, r.shape, r.stride() if r.numel() > 1 else None) for r in results]
    return kinds, [*results, x.grad]


def differ(a: Any, b: Any) -> bool:
    if a[0] != b[0] or isinstance(a[0], type):
        return bool(a != b)
    with contextlib.suppress(AssertionError):
        torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=1e-5, equal_nan=True)
        return False
    return True


def sweep_arguments(seed: int = 0, count: int = 2_000) -> Iterator[tuple[str, str]]:
    """The calls that differ, each with the number that draws it again."""
    with interpreted(), torch.enable_grad():
        for number in range(count):
            d = Draw(f"{seed} {number}")
            name = d.choice([*CALLS])
            fn, x = CALLS[name](d)
            order, follows = d.randint(0, 2), d.flag()
            jitted = frameloom.jit(fn, dynamic=d.choice([None, True, False]))
            plain, ours = (outcome(side, x, order, follows) for side in (fn, jitted))
            if differ(plain, ours):
                yield f"{name}, {seed} {number}", f"{list(x.shape)}: {plain} and {ours}"[:400]
            if number % 200 == 0:
                frameloom.reset()
