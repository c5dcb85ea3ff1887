"""Nothing grows and nothing is kept."""

import gc
import os

import pytest
import torch

from frameloom import jit, reset

pytestmark = pytest.mark.compiled


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(call, times):
    """Bytes by which the process grows in `times` calls: the least of three rounds.  What is kept is kept in each of them; what another
    thread or the allocator takes meanwhile is not."""
    rounds = []
    for _ in range(3):
        gc.collect()
        before = resident_bytes()
        for _ in range(times):
            call()
        gc.collect()
        rounds.append(resident_bytes() - before)
    return min(rounds)


def test_many_calls_keep_memory_flat():
    @jit
    def f(x, y):
        return torch.relu(x + y) * 2

    x, y = torch.randn(16), torch.randn(16)
    with torch.no_grad():
        for _ in range(20_000):
            f(x, y)
        assert growth(lambda: f(x, y), 250_000) < 1 << 18


def test_functions_made_and_dropped_keep_memory_flat():
    x = torch.randn(16)

    def make_and_call():
        f = jit(lambda x: x * 2 + 1)
        with torch.no_grad():
            f(x)

    for _ in range(20):
        make_and_call()
    assert growth(make_and_call, 50) < 2 << 20


def loaded_kernels():
    with open("/proc/self/maps") as maps:
        return sum(os.environ["FRAMELOOM_CACHE_DIR"] in line for line in maps)


def test_kernels_are_unloaded_with_their_functions():
    def make(k):
        return jit(lambda x: torch.relu(x + k) * k)

    x = torch.randn(8)
    before = loaded_kernels()
    functions = [make(k + 0.25) for k in range(3)]
    for f in functions:
        f(x)
    assert loaded_kernels() > before
    del functions, f
    gc.collect()
    assert loaded_kernels() == before


def test_reset_unloads_kernels():
    reset()
    gc.collect()
    before = loaded_kernels()
    f = jit(lambda x: torch.relu(x + 0.125) * 3)
    with torch.no_grad():
        f(torch.randn(8))
    assert loaded_kernels() > before
    reset()
    gc.collect()
    assert loaded_kernels() <= before
