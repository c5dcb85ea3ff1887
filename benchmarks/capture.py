"""What capture costs: `python benchmarks/capture.py`.

chain   milliseconds per recorded op, its fake tensors and everything else of the capture included; nothing is compiled
loop    microseconds per bytecode step that records nothing

CPU time of the process, the least of many captures.
"""

import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from frameloom.capture.interpreter.tracer import Tracer
from tests.capture.capturing import jitted

torch.set_num_threads(1)
torch.set_grad_enabled(False)


def chain(x):
    i = 0
    while i < 100:
        x = torch.relu(x) * 2.0 + x
        i += 1
    return x


def loop(x):
    total = i = 0
    while i < 2000:
        total += i * 3
        i += 1
    return x + total


def capture(function, repeats=15):
    """Seconds of one capture, its bytecode steps and its ops."""
    counts, best = [], float("inf")
    release = Tracer.release

    def counting(tracer):
        counts.append((tracer.steps, tracer.recorder.n_ops))
        release(tracer)

    Tracer.release = counting
    try:
        for _ in range(repeats):
            target, _seen = jitted(function)
            start = time.process_time()
            target(torch.ones(3, 4))
            best = min(best, time.process_time() - start)
    finally:
        Tracer.release = release
    return best, *counts[0]


seconds, steps, ops = capture(chain)
print(f"chain   {ops} ops in {steps} steps: {seconds / ops * 1e3:.3f} ms per op")
seconds, steps, ops = capture(loop)
print(f"loop    {steps} steps: {seconds / steps * 1e6:.2f} us per step")
