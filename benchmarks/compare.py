"""Eager, torch.compile and Frameloom side by side in one process: steady state, ratio, first call, relative error.

    python -m benchmarks.compare [--impl eager,inductor,frameloom] [--cases k_softmax,k_rope] [--device cuda] [--json out.json]

`inductor` is torch.compile, `frameloom` this project; `-ro` and `-ma` behind either stand for the modes "reduce-overhead" and "max-autotune".
Times are microseconds per call without gradients, the median of five runs; the CPU computes in float32, a GPU in bfloat16.
"""

import argparse
import json
import statistics
import time

import torch

import frameloom
from benchmarks.cases import CASES

MODES = {"": None, "ro": "reduce-overhead", "ma": "max-autotune"}
SECONDS = 0.6  # for the timing of one case


def build(impl, fn):
    """What is called for `impl`, with nothing compiled yet."""
    name, _, mode = impl.partition("-")
    if name == "eager":
        return fn
    if name == "inductor":
        torch._dynamo.reset()
        return torch.compile(fn, mode=MODES[mode])
    if name == "frameloom":
        frameloom.reset()
        return frameloom.jit(fn, mode=MODES[mode])
    raise SystemExit(
        f"--impl {impl}: expected eager, inductor or frameloom, the last two also with -ro or -ma"
    )


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(call, device):
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - start


def repeated(call, calls, device):
    """Microseconds of one of `calls` calls in a row; on a GPU, between events of its stream."""
    if device != "cuda":
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) * 1e6 / calls
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) * 1e3 / calls


def steady(call, device):
    for _ in range(5):
        call()
    calls = max(10, min(2000, int(SECONDS / 5 / max(seconds(call, device), 1e-6))))
    return statistics.median(repeated(call, calls, device) for _ in range(5))


def error(got, expected):
    """The norm of the difference over the norm of what is expected, of the first result."""
    if isinstance(expected, tuple):
        got, expected = got[0], expected[0]
    got, expected = got.double(), expected.double()
    return ((got - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def measured(impl, fn, args, expected, device):
    compiled = build(impl, fn)
    results = []
    first = seconds(lambda: results.append(compiled(*args)), device)
    return {
        "first": first,
        "us": steady(lambda: compiled(*args), device),
        "error": error(results[0], expected),
    }


def line(name, row):
    base = row.get("eager", {}).get("us")
    parts = [f"{name:26}"]
    for impl, r in row.items():
        if "failed" in r:
            parts.append(f"{impl}: {r['failed'][:60]}")
            continue
        ratio = f" x{base / r['us']:.2f}" if base else ""
        parts.append(
            f"{impl}: {r['us']:.1f} us{ratio}, first {r['first']:.2f} s, error {r['error']:.0e}"
        )
    return " | ".join(parts)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--impl", default="eager,inductor,frameloom")
    parser.add_argument("--cases", default="all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    names = list(CASES) if options.cases == "all" else options.cases.split(",")
    if unknown := set(names) - set(CASES):
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    rows = {}
    for name in names:
        torch.manual_seed(0)
        fn, args = CASES[name](options.device, dtype)
        row = rows[name] = {}
        with torch.no_grad():
            expected = fn(*args)
            for impl in options.impl.split(","):
                try:
                    row[impl] = measured(impl, fn, args, expected, options.device)
                except Exception as failure:
                    row[impl] = {"failed": f"{type(failure).__name__}: {failure}"}
        print(line(name, row), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
