"""Gradients of results that come in all layouts: gradients of inputs have eager's numbers, dtypes, strides and places, whoever looks at them.

One jitted function gets one layout after the other, so that passes for one layout stand beside those for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import frameloom
from tests.fuzz.interpret import interpreted

Call = Callable[..., torch.Tensor]
SHAPES = ((2, 3, 4), (3, 1, 2), (4, 3), (1, 5), (5, 1), (2, 3, 4, 5), (2, 4, 1, 3), (3,))
HOW_INPUTS_LIE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.movedim(0, -1).contiguous().movedim(-1, 0),
}  # fmt: skip


def _empty_like(y: torch.Tensor, order: Sequence[int], gaps: int = 1) -> torch.Tensor:
    strides, step = [0] * y.dim(), gaps
    for d in order:
        strides[d], step = step, step * y.shape[d] * gaps
    return torch.empty_strided(y.shape, strides, dtype=y.dtype)


def _odd(y: torch.Tensor) -> torch.Tensor:
    """With other strides where sizes are 1."""
    strides = [7 if n == 1 else s for n, s in zip(y.shape, y.stride(), strict=True)]
    return torch.empty_strided(y.shape, strides, dtype=y.dtype)


# From a result to a tensor like its gradient.
GIVEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda y: torch.empty(y.shape, dtype=y.dtype),
    "expanded": lambda y: torch.empty((), dtype=y.dtype).expand(y.shape),
    "expanded first": lambda y: torch.empty(y.shape[1:], dtype=y.dtype).expand(y.shape),
    "expanded last": lambda y: torch.empty((*y.shape[:-1], 1), dtype=y.dtype).expand(y.shape) if y.dim() else torch.empty_like(y),
    "permuted": lambda y: _empty_like(y, range(y.dim())),
    "channels last": lambda y: _empty_like(y, [*range(y.dim())][1:2] + [*range(y.dim())][:1:-1] + [0][: y.dim()]),
    "as the result": torch.empty_like,
    "gaps": lambda y: _empty_like(y, range(y.dim() - 1, -1, -1), 2),
    "permuted gaps": lambda y: _empty_like(y, range(y.dim()), 2),
    "odd": _odd,
    "half expanded": lambda y: torch.empty(y.shape[-1:], dtype=y.dtype).expand(y.shape) if y.dim() else torch.empty_like(y),
}  # fmt: skip

ELEMENTWISE: dict[str, Call] = {
    "x * 2": lambda x, w: x * 2,
    "x + 1": lambda x, w: x + 1,
    "x + w": lambda x, w: x + w,
    "x * w": lambda x, w: x * w,
    "sin": lambda x, w: x.sin(),
    "relu": lambda x, w: x.relu(),
    "gelu": lambda x, w: F.gelu(x),
    "softplus": lambda x, w: F.softplus(x),
    "sigmoid twice": lambda x, w: (s := x.sigmoid()) * s,
    "x / w": lambda x, w: x / (w.abs() + 1),
    "where": lambda x, w: torch.where(x > w, x, w * 2),
    "clamp": lambda x, w: x.clamp(-0.5, 0.5),
    "maximum": lambda x, w: torch.maximum(x, w),
    "pow": lambda x, w: x.abs() ** 3,
    "double": lambda x, w: x.double() * w,
    "half": lambda x, w: (x.bfloat16() * w.bfloat16()).float(),
    "used twice": lambda x, w: x * w + x.cos(),
    "with a row": lambda x, w: x * w[..., :1],
    "with a column": lambda x, w: x[:1] + w,
    "without history": lambda x, w: x * torch.ones(x.shape[::-1]).permute(*reversed(range(x.dim()))),
    "ldexp": lambda x, w: torch.ldexp(x, w.int()),
    "lerp": lambda x, w: torch.lerp(x, w, 0.3),
    "addcmul": lambda x, w: torch.addcmul(x, x, w),
    "dropout of nothing": lambda x, w: F.dropout(x, 0.0, True),
    "masked_fill": lambda x, w: x.masked_fill(w > 0, 0.0),
}  # fmt: skip
VIEWS: dict[str, Call] = {
    "transposed": lambda x, w: x.transpose(0, -1) * 2,
    "transposed alone": lambda x, w: x.sin().transpose(0, -1),
    "result transposed": lambda x, w: (x * w).transpose(0, -1).sin(),
    "flat": lambda x, w: x.reshape(-1) * 2,
    "flat behind": lambda x, w: (x * w).reshape(-1),
    "flat of transposed": lambda x, w: (x * w).transpose(0, -1).reshape(-1).cos(),
    "split in two": lambda x, w: (x * 2).reshape(-1).view(-1, x.shape[-1]) * 3,
    "slice": lambda x, w: x[..., :1] * 2,
    "last": lambda x, w: x[-1] + 1,
    "expanded": lambda x, w: x.expand(3, *x.shape) * 2,
    "expanded one": lambda x, w: x[:, None] * w[None] if x.dim() > 1 else x * 2,
    "cat": lambda x, w: torch.cat([x, w * 2], -1),
    "stack": lambda x, w: torch.stack([x, w], 1 if x.dim() > 1 else 0),
    "chunks": lambda x, w: x.chunk(2, 0)[0] * 2,
    "unsqueezed": lambda x, w: x.unsqueeze(1) * 2,
    "squeezed": lambda x, w: x.squeeze() * 2,
    "movedim": lambda x, w: x.movedim(0, -1) * 1,
    "flip": lambda x, w: x.flip(0) * 2,
    "roll": lambda x, w: x.roll(1, 0),
    "repeat": lambda x, w: x.repeat(2, *[1] * (x.dim() - 1)),
    "index": lambda x, w: x[torch.tensor([0, 0])] * 2,
    "pad": lambda x, w: F.pad(x, (1, 1)) * 2,
    "contiguous": lambda x, w: x.transpose(0, -1).contiguous() * 2,
    "diagonal": lambda x, w: x.diagonal(0, 0, -1) if x.dim() > 1 else x * 2,
    "tril": lambda x, w: x.tril() if x.dim() > 1 else x * 2,
    "unflatten": lambda x, w: (x * w).flatten().unflatten(0, x.shape),
    "complex": lambda x, w: torch.view_as_real(torch.complex(x, w)),
    "as_strided": lambda x, w: (x * 2).contiguous().as_strided((2,), (1,)) if x.numel() > 2 else x * 2,
}  # fmt: skip
OTHERS: dict[str, Call] = {
    "sum": lambda x, w: x.sum(0) * 2,
    "sum kept": lambda x, w: (x * w).sum(-1, keepdim=True),
    "mean": lambda x, w: x.mean(-1),
    "sum of transposed": lambda x, w: x.transpose(0, -1).sum(0),
    "amax": lambda x, w: x.amax(0),
    "max": lambda x, w: x.max(-1).values,
    "softmax": lambda x, w: x.softmax(-1),
    "log_softmax first": lambda x, w: x.log_softmax(0),
    "cumsum": lambda x, w: x.cumsum(0),
    "logsumexp": lambda x, w: x.logsumexp(-1),
    "norm": lambda x, w: x.norm(dim=0),
    "var": lambda x, w: x.var(0, correction=0),
    "layer_norm": lambda x, w: F.layer_norm(x, x.shape[-1:]),
    "normalize": lambda x, w: F.normalize(x, dim=0),
    "sorted": lambda x, w: x.sort(-1).values,
    "gather": lambda x, w: x.gather(0, torch.zeros(x.shape, dtype=torch.int64)),
    "matmul": lambda x, w: x @ w.transpose(-1, -2) if x.dim() > 1 else x * 2,
    "matmul of one": lambda x, w: x @ w[(0,) * (w.dim() - 1)],
    "linear": lambda x, w: F.linear(x, w.flatten()[: x.shape[-1]][None]),
    "einsum": lambda x, w: torch.einsum("...i,...i->...i", x, w),
    "outer": lambda x, w: x.flatten()[:3, None] * w.flatten()[None, :2],
    "mse": lambda x, w: F.mse_loss(x, w, reduction="none"),
    "whole": lambda x, w: (x * w).sum(),
    "conv": lambda x, w: F.conv2d(x, w.flatten()[0].expand(2, x.shape[1], 1, 1)) if x.dim() == 4 else x * 2,
    "pool": lambda x, w: F.avg_pool2d(x, (1, 1)) if x.dim() > 2 else x * 2,
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, training=True) if x.dim() == 4 else x * 2,
    "mlp": lambda x, w: torch.tanh(x.transpose(0, -1) * w.transpose(0, -1)) + x.transpose(0, -1),
}  # fmt: skip
TABLE = {**ELEMENTWISE, **VIEWS, **OTHERS}


def _facts(t: torch.Tensor | None) -> Any:
    return None if t is None else (t.dtype, tuple(t.shape), t.stride(), t.storage_offset())


def seen(fn: Call, shape: Sequence[int], lies: str, names: Sequence[str]) -> Iterator[tuple[str, list[Any], list[Any]]]:  # fmt: skip
    """By layout of the gradient: what is said of gradients, and their values."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for name in names:
            x, w = (HOW_INPUTS_LIE[lies](torch.randn(shape)).requires_grad_() for _ in range(2))
            said: list[torch.Tensor | None] = []
            inner = x * 1.5
            inner.retain_grad()
            other = w * 1.5
            other.register_hook(said.append)
            y = fn(inner, other)
            if not y.is_floating_point():
                return
            given = GIVEN[name](y.detach())
            own = given[tuple(slice(0, None if s else 1) for s in given.stride())]
            own.copy_(torch.randn(own.shape))
            (direct,) = torch.autograd.grad(y, inner, given, retain_graph=True)
            y.backward(given)
            # Of leaves, too, without anything between.
            a, b = (t.detach().clone().requires_grad_() for t in (x, w))
            fn(a, b).backward(given)
            found = [direct, inner.grad, *said, x.grad, w.grad, a.grad, b.grad]
            yield name, [*map(_facts, found)], found


def differences(
    fn: Call, shape: Sequence[int], lies: str, names: Sequence[str], dynamic: bool
) -> Iterator[str]:
    try:
        want = [*seen(fn, shape, lies, names)]
    except (RuntimeError, IndexError):
        return  # not for such a shape
    frameloom.reset()
    got = seen(frameloom.jit(fn, dynamic=dynamic), shape, lies, names)
    for (name, expected, numbers), (_, found, own) in zip(want, got, strict=True):
        if found != expected:
            said = [(a[2:], b[2:]) if a and b else (a, b) for a, b in zip(found, expected, strict=True) if a != b]  # fmt: skip
            yield f"gradient {name}: {said[0][0]} instead of {said[0][1]}"
        for a, b in zip(own, numbers, strict=True):
            if b is not None and not torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True):
                yield f"gradient {name}: values"
                break


def sweep_gradients(names: Sequence[str] = tuple(GIVEN)) -> Iterator[str]:
    with torch.enable_grad(), interpreted():
        for title, fn in TABLE.items():
            for shape in SHAPES:
                for lies in HOW_INPUTS_LIE:
                    for dynamic in (False, True):
                        # Open: of gaps, and sizes of 1 among those that vary, only the order is known.
                        chosen = [n for n in names if not (dynamic and 1 in shape and "gaps" in n)]
                        try:
                            for found in differences(fn, shape, lies, chosen, dynamic):
                                yield f"{title} of {shape} {lies}{', sizes vary' * dynamic}, {found}"
                        except Exception as error:
                            yield f"{title} of {shape} {lies}{', sizes vary' * dynamic}: {type(error).__name__}: {str(error)[:200]}"
