"""Compile time and kernels by depth: models of k equal blocks, nothing kept from one compile to the next.

    python -m benchmarks.depth [--depths 1,4,8,16,32] [--models transformer,convolutions] [--freezing]

Printed for each depth: seconds of the first call (the smallest of several), how many times those of half the depth that
is, and how many kernels were generated, as the texts that a C++ compiler sees: equal kernels count once.
"""

import argparse
import contextlib
import time

import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from frameloom.debug import Trail
from frameloom.runtime.build import cpp_compiler


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        parts = (
            self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Residual(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


MODELS = {
    "transformer": (Attention, (2, 16, 64)),
    "convolutions": (Residual, (1, 32, 28, 28)),
}


@contextlib.contextmanager
def noting(stages):
    """Seconds of each stage of the compiles, in `stages`."""
    original = Trail.close

    def close(self):
        for name, seconds in self.seconds.items():
            stages[name] = stages.get(name, 0.0) + seconds
        return original(self)

    Trail.close = close
    try:
        yield
    finally:
        Trail.close = original


def compile_once(model, x, options):
    """Seconds of a first call, of its stages, and what was built."""
    frameloom.reset()
    stages, texts = {}, set()
    original = cpp_compiler.build

    def built(sources):
        for source in sources:
            texts.update((source.text, e.symbol) for e in source.entries)
        return original(sources)

    cpp_compiler.build = built
    try:
        jitted = frameloom.jit(lambda x: model(x), options=options)
        with noting(stages):
            start = time.perf_counter()
            jitted(x)
            seconds = time.perf_counter() - start
    finally:
        cpp_compiler.build = original
    return seconds, stages, len(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", default="1,4,8,16,32")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--freezing", action="store_true")
    given = parser.parse_args()
    options = {"freezing": True} if given.freezing else None
    for name in given.models.split(","):
        block, shape = MODELS[name]
        x, last = torch.randn(shape), None
        for depth in map(int, given.depths.split(",")):
            model = nn.Sequential(*(block() for _ in range(depth))).eval()
            with torch.no_grad():
                runs = [compile_once(model, x, options) for _ in range(given.rounds)]
            seconds, stages, kernels = min(runs, key=lambda r: r[0])
            told = "  ".join(f"{n} {1e3 * s:.0f}" for n, s in stages.items())
            ratio = f"x{seconds / last[1]:.2f} for x{depth / last[0]:g}" if last else ""
            print(
                f"{name:13} {depth:3} blocks {1e3 * seconds:7.0f} ms {ratio:15} {kernels:3} kernels  ({told})"
            )
            last = depth, seconds


if __name__ == "__main__":
    main()
