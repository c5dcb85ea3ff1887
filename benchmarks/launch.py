"""CPU microseconds per call of plans with one, two and ten kernels, beside eager's; run on a machine with a GPU.

    python -m benchmarks.launch [--seconds 0.3]

The kernels are tiny and written by hand, so this is what launching costs and nothing else.  `wall` is the time per call
with the GPU waited for at the end: what a loop of such calls takes.
"""

import argparse
import time

import torch

from frameloom.runtime.spec import ExternCall, ViewSpec
from tests.runtime.pointwise_sources import launch, plan, source

N = 1024


def chain(kernels, kept):
    """A plan of so many kernels, one behind the other; `kept`: all results are returned."""
    steps, kinds = [], []
    for k in range(kernels):
        last = k == kernels - 1
        kinds.append("output" if last or kept else "arena")
        steps.append(launch(source(f"step{k}", f"a * 2 + {k}", N), (k, k + 1)))
    outputs = range(1, kernels + 1) if kept else [kernels]
    return plan(N, 1, kinds, steps, outputs)


def in_place():
    return plan(N, 1, [], [launch(source("own", "a * 2", N), (0, 0))], [])


def two_products():
    def square(b):
        return ViewSpec(b, (32, 32), (32, 1), 0, torch.float32)

    mm = torch.ops.aten.mm
    steps = [
        ExternCall("aten.mm.default", mm.out, (square(0), square(0)), {}, (1,), True),
        launch(source("between", "a * 2", N), (1, 2)),
        ExternCall("aten.mm.default", mm.out, (square(2), square(0)), {}, (3,), True),
    ]
    return plan(N, 1, ["arena", "arena", "output"], steps, [3], shape=(32, 32))


def measure(call, x, seconds):
    """(CPU microseconds, wall microseconds) per call; the smallest of several rounds, short of filling the queue."""
    for _ in range(20):
        call(x)
    torch.cuda.synchronize()
    cpu = wall = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            call(x)
        issued = time.perf_counter()
        torch.cuda.synchronize()
        done = time.perf_counter()
        cpu, wall = min(cpu, issued - start), min(wall, done - start)
    return 1e6 * cpu / 50, 1e6 * wall / 50


def jitted():
    """The whole way of a call: guards, plan, result."""
    import frameloom

    try:
        f = frameloom.jit(lambda x: torch.relu(x + 1) * 2)
        f(torch.ones(N, device="cuda"))
        return f
    except ImportError:  # no generator of Triton code yet
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3)
    seconds = parser.parse_args().seconds
    x = torch.randn(N, device="cuda")
    square, products = x.view(32, 32), two_products()
    cases = {
        "plan, no output, 1 kernel": in_place(),
        "plan, 1 kernel": chain(1, False),
        "plan, 2 kernels": chain(2, False),
        "plan, 10 kernels": chain(10, False),
        "plan, 10 kernels, 10 outputs": chain(10, True),
        "plan, mm + kernel + mm": lambda x: products(square),
        "jit, relu(x + 1) * 2": jitted(),
        "eager x + x": lambda x: x + x,
        "eager x.mul_(2)": lambda x: x.mul_(2),
        "eager relu(x + 1) * 2": lambda x: torch.relu(x + 1) * 2,
        "eager mm, mul, mm": lambda x: torch.mm(torch.mm(square, square) * 2, square),
        "torch.empty_strided": lambda x: torch.empty_strided((N,), (1,), device="cuda"),
    }
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds per call")
    print(f"{'':32}{'cpu':>8}{'wall':>8}")
    with torch.no_grad():
        for name, call in cases.items():
            if call is not None:
                cpu, wall = measure(call, x, seconds)
                print(f"{name:32}{cpu:8.2f}{wall:8.2f}")


if __name__ == "__main__":
    main()
