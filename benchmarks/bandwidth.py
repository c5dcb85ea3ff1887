"""Memory-bound functions on the CPU beside the machine's copy bandwidth.

    python -m benchmarks.bandwidth [--cases k_softmax,k_rope] [--threads 2] [--seconds 3]

For each case of benchmarks/cases.py: the bytes it must move (every input read once, every output written once), its time,
the time of a copy that moves as many bytes, and their ratio.  Then what the same work takes in the caches (the time by which
a call with twice as few rows is longer, times as many), and its share of the case's time: where that is most of it, arithmetic
is the bound and not memory.  Sides take turns and the least time of each is kept.
"""

import argparse
import time

import torch

import frameloom
from benchmarks.cases import CASES

PIECE = 32 << 10  # bytes of the arguments of the larger cached piece


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)]


def nbytes(found):
    return sum(t.numel() * t.element_size() for t in found)


def few_rows(args, part=1):
    """The arguments cut along the first dimension of the first that is longer than one, so that they stay in the cache; and a
    `part` of those rows."""
    first = args[0]
    dim = next(d for d, n in enumerate(first.shape) if n > 1)
    rows = first.shape[dim]
    keep = max(2, min(rows, rows * PIECE // nbytes(args))) // part
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
    parser.add_argument("--cases", default="")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    names = [n for n in given.cases.split(",") if n] or [n for n in CASES if n.startswith("k_")]
    print("| case | MB | us | GB/s | copy us | ratio | us in the caches | share of the time |")
    print("|---|---|---|---|---|---|---|---|")
    with torch.no_grad():
        for name in names:
            torch.manual_seed(0)
            fn, args = CASES[name]("cpu", torch.float32)
            frameloom.reset()
            compiled = frameloom.jit(fn)
            moved = nbytes(args) + nbytes(tensors(compiled(*args)))
            half = torch.ones(moved // 8), torch.empty(moved // 8)
            calls = [(compiled, args), (lambda s, d: d.copy_(s), half)]
            sizes = []
            for piece in (few_rows(args, 2), few_rows(args)):
                try:
                    sizes.append(nbytes(piece) + nbytes(tensors(fn(*piece))))
                except RuntimeError:
                    break  # its rows belong to other arguments' columns
                if sizes[-1] > 16 * PIECE:
                    break  # a row is too long
                calls.append((frameloom.jit(lambda *a, fn=fn: fn(*a)), piece))
            for f, a in calls:
                f(*a)
            taken, copied, *inside = least(calls, given.seconds)
            cached = share = "-"
            if len(inside) == 2:
                each = (inside[1] - inside[0]) / (sizes[1] - sizes[0])
                cached, share = each * moved / given.threads, each * moved / given.threads / taken
                cached, share = f"{1e6 * cached:.0f}", f"{share:.2f}"
            print(
                f"| {name} | {moved / 1e6:.1f} | {1e6 * taken:.0f} | {moved / taken / 1e9:.1f} |"
                f" {1e6 * copied:.0f} | {taken / copied:.2f} | {cached} | {share} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
