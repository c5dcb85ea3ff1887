"""Memory-bound functions on the CPU beside the machine's copy bandwidth.

    python -m benchmarks.bandwidth [--bench ../shared/bench] [--cases k_softmax,k_rope] [--threads 2] [--seconds 3]

For each case of the folder's cases.py: the bytes it must move (every input read once, every output written once), its time,
the time of a copy that moves as many bytes, and their ratio.  The last column is the case's time per byte on a piece of a few
rows, which stays in the first-level cache: where it is near the whole's, arithmetic is the bound and not memory.  Sides take
turns and the least time of each is kept.
"""

import argparse
import importlib
import sys
import time

import torch

import frameloom

PIECE = 64 << 10  # bytes of the cached piece


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)]


def nbytes(found):
    return sum(t.numel() * t.element_size() for t in found)


def few_rows(args):
    """The arguments cut along the first dimension of the first that is longer than one, so that they stay in the cache."""
    first = args[0]
    dim = next(d for d, n in enumerate(first.shape) if n > 1)
    rows = first.shape[dim]
    keep = max(1, min(rows, rows * PIECE // nbytes(args)))
    cut = [
        a.narrow(dim, 0, keep).contiguous() if a.dim() > dim and a.shape[dim] == rows else a
        for a in args
    ]
    return tuple(cut)


def least(calls, seconds):
    """Seconds of each call, the least of many; `calls`: (function, arguments) each."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for k, (f, args) in enumerate(calls):
            for _ in range(20):
                start = time.perf_counter()
                f(*args)
                best[k] = min(best[k], time.perf_counter() - start)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", default="../shared/bench")
    parser.add_argument("--cases", default="")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    sys.path.insert(0, given.bench)
    cases = importlib.import_module("cases").CASES
    torch.set_num_threads(given.threads)
    names = [n for n in given.cases.split(",") if n] or [n for n in cases if n.startswith("k_")]
    print("| case | MB | us | GB/s | copy us | ratio | us if it stayed in the cache |")
    print("|---|---|---|---|---|---|---|")
    with torch.no_grad():
        for name in names:
            torch.manual_seed(0)
            fn, args = cases[name]("cpu", torch.float32)
            frameloom.reset()
            compiled = frameloom.jit(fn)
            moved = nbytes(args) + nbytes(tensors(compiled(*args)))
            half = torch.ones(moved // 8), torch.empty(moved // 8)
            calls = [(compiled, args), (lambda s, d: d.copy_(s), half)]
            piece = few_rows(args)
            try:
                part = nbytes(piece) + nbytes(tensors(fn(*piece)))
                calls.append((frameloom.jit(lambda *a, fn=fn: fn(*a)), piece))
            except RuntimeError:
                part = 0  # its rows belong to other arguments' columns
            for f, a in calls:
                f(*a)
            taken, copied, *inside = least(calls, given.seconds)
            cached = f"{1e6 * inside[0] * moved / part / given.threads:.0f}" if inside else "-"
            print(
                f"| {name} | {moved / 1e6:.1f} | {1e6 * taken:.0f} | {moved / taken / 1e9:.1f} |"
                f" {1e6 * copied:.0f} | {taken / copied:.2f} | {cached} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
