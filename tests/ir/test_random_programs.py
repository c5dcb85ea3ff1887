"""Random programs: eager, lowered and fused agree.  A failure prints its seed: `run(seed)` is the whole case."""

import random

import pytest
import torch

from frameloom.ir.passes.fuse import fuse
from frameloom.ir.passes.memory import plan_memory
from frameloom.ir.text import parse, show
from frameloom.ir.verify import verify
from tests.ir.helpers import check

UNARY = [
    torch.sin, torch.relu, torch.neg, torch.exp, torch.abs, lambda x: x * 0.5, lambda x: x + 1, torch.sigmoid,
    lambda x: x.bfloat16().float(), lambda x: torch.where(x > 0, x, -x * 2), lambda x: (x > 0.2).float(), torch.tanh,
]  # fmt: skip
BINARY = [torch.add, torch.mul, torch.sub, torch.maximum, lambda a, b: torch.where(a > b, a, b * 2)]
REDUCE = [
    lambda x, d: x.sum(d, keepdim=True), lambda x, d: x.mean(d), lambda x, d: x.amax(d, keepdim=True),
    lambda x, d: x.softmax(d), lambda x, d: x.var(d, keepdim=True, correction=0), lambda x, d: x.argmax(d).float(),
    lambda x, d: torch.nn.functional.layer_norm(x, x.shape[-1:]), lambda x, d: x.logsumexp(d),
]  # fmt: skip
SHAPE = [
    lambda x, d: x.transpose(0, d), lambda x, d: x.unsqueeze(d), lambda x, d: x.flip(d), lambda x, d: x.narrow(d, 0, max(1, x.shape[d] // 2)),
    lambda x, d: torch.cat([x, x * 2], d), lambda x, d: x.reshape(-1, x.shape[-1]), lambda x, d: x.roll(1, d),
    lambda x, d: x.contiguous(), lambda x, d: torch.stack([x, x + 1], d), lambda x, d: x.expand(2, *x.shape),
    lambda x, d: torch.nn.functional.pad(x, (1, 0)), lambda x, d: x.index_select(d, torch.zeros(3, dtype=torch.long)),
    lambda x, d: x.select(d, 0), lambda x, d: x.reshape(-1)[::2],
]  # fmt: skip


def program(seed):
    def function(*inputs):
        draw = random.Random(seed)
        values = list(inputs)
        for _ in range(draw.randint(3, 14)):
            x = draw.choice(values[-5:])
            kind = draw.random()
            d = draw.randrange(x.ndim) if x.ndim else 0
            if kind < 0.35 or x.ndim == 0:
                y = draw.choice(UNARY)(x)
            elif kind < 0.6:
                y = combine(draw, x, draw.choice(values))
            elif kind < 0.75:
                y = draw.choice(REDUCE)(x, d)
            elif kind < 0.97:
                y = draw.choice(SHAPE)(x, d)
            else:
                y = torch.cumsum(x, d)
            if y.numel() <= 4000 and y.ndim <= 5:
                values.append(y)
        for k, t in enumerate(inputs):
            if draw.random() < 0.25:
                t.add_(k + 1)
                values.append(t * 2)
        return [values[-1], *draw.sample(values[len(inputs) :], min(2, len(values) - len(inputs)))]

    return function


def combine(draw, x, y):
    try:
        torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        y = y.mean()
    return draw.choice(BINARY)(x, y)


def run(seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = [
        torch.randn(4, 6, generator=generator),
        torch.randn(6, generator=generator),
        torch.randn(3, 4, 6, generator=generator),
    ]
    fused = check(
        program(seed),
        *inputs,
        passes=[fuse],
        lowered=False,
        functional=True,
        tolerance=(1e-4, 1e-4),
    )
    verify(fused)
    assert parse(show(fused)) == fused
    plan_memory(fused)
    return fused


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed):
    run(seed)
