"""Strides of what ops on images and rows of samples give, where sizes vary and come to 1: eager takes its memory format from the operand's strides."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tests.fuzz.support import LAYOUTS
from tests.sweeps.strides import Call, sweep_drawn

ROWS: dict[str, Call] = {
    "avg_pool1d": lambda x: F.avg_pool1d(x, 2),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool1d, 1": lambda x: F.max_pool1d(x, 2, 1),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 1),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
    "linear": lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"),
    "pad": lambda x: F.pad(x, (1, 1)),
    "reflect": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 1), mode="replicate"),
    "instance_norm": lambda x: F.instance_norm(x),
    "conv1d": lambda x: F.conv1d(x, x.new_ones(2, x.shape[1], 1)),
    "cat": lambda x: torch.cat([x, x], 1),
    "roll": lambda x: x.roll(1, 0),
}
IMAGES: dict[str, Call] = {
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "avg_pool2d, 1": lambda x: F.avg_pool2d(x, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "places": lambda x: F.max_pool2d(x, 1, return_indices=True),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"),
    "pad": lambda x: F.pad(x, (1, 1)),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 1),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 1),
    "instance_norm": lambda x: F.instance_norm(x),
    "batch_norm": lambda x: F.batch_norm(x, x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])),
    "group_norm": lambda x: F.group_norm(x, 1),
    "conv2d": lambda x: F.conv2d(x, x.new_ones(2, x.shape[1], 1, 1)),
    "dropout2d": lambda x: F.dropout2d(x, 0.5, False),
    "cat": lambda x: torch.cat([x, x], 1),
    "roll": lambda x: x.roll(1, 0),
    "x * 2": lambda x: x * 2,
    "clone": lambda x: x.clone(),
    "softmax": lambda x: x.softmax(1),
    "unfold": lambda x: F.unfold(x, 1),
}
BEFORE: dict[str, Call] = {
    "": lambda x: x,
    "[None]": lambda x: x[None],
    "[:, None]": lambda x: x[:, None],
    "[..., None]": lambda x: x[..., None],
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(-1, 1),
    "back": lambda x: x.movedim(1, -1),
    "[:1]": lambda x: x[:1],
    "[..., 1:]": lambda x: x[..., 1:],
    "expand": lambda x: x.expand(2, *x.shape),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
}


def drawn(choose: random.Random) -> tuple[Call, list[list[Any]], Any, str]:
    """As of strides.py."""
    rank = choose.choice((3, 4, 4))
    table = ROWS if rank == 3 else IMAGES
    name, before, then = choose.choice([*table]), choose.choice([*BEFORE]), choose.choice([*BEFORE])
    behind = choose.choice(("", "* 1", "// 1"))

    def fn(x: torch.Tensor) -> Any:
        y = table[name](BEFORE[then](BEFORE[before](x)))
        return y if not behind else y * 1 if behind == "* 1" else y // 1

    added = {"[None]": 1, "[:, None]": 1, "[..., None]": 1, "expand": 1}
    rank -= added.get(before, 0) + added.get(then, 0)
    sizes, dtype = choose.choice(((1, 2, 3, 4), (2, 3), (1, 3))), choose.choice(("float32", "float32", "int64"))  # fmt: skip
    grad, lies = choose.choice(("leaf", "", "")), choose.choice(LAYOUTS)
    moving, steps = choose.random() < 0.5, []
    for _ in range(3):
        shape = [choose.choice(sizes) for _ in range(rank)]
        steps.append([(shape, dtype, 0, choose.choice(LAYOUTS) if moving else lies, grad)])
    dynamic = choose.choice((None, True))
    return fn, steps, dynamic, f"{before} {then} {name} {behind} {dtype} {grad} dynamic={dynamic}"


def sweep_images(seeds: Sequence[int] = range(1000)) -> Iterator[str]:
    return sweep_drawn(drawn, seeds)
