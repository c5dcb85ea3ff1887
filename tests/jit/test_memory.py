"""Nothing grows and nothing is kept."""

import gc
import os

import torch

from frameloom import jit


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_many_calls_keep_memory_flat():
    @jit
    def f(x, y):
        return torch.relu(x + y) * 2

    x, y = torch.randn(16), torch.randn(16)
    with torch.no_grad():
        for _ in range(100_000):
            f(x, y)
        gc.collect()
        before = resident_bytes()
        for _ in range(1_000_000):
            f(x, y)
        gc.collect()
    assert resident_bytes() - before < 1 << 20


def test_functions_made_and_dropped_keep_memory_flat():
    x = torch.randn(16)

    def make_and_call():
        f = jit(lambda x: x * 2 + 1)
        with torch.no_grad():
            f(x)

    for _ in range(20):
        make_and_call()
    gc.collect()
    before = resident_bytes()
    for _ in range(100):
        make_and_call()
    gc.collect()
    assert resident_bytes() - before < 4 << 20
