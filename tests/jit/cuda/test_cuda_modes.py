"""mode="max-autotune" and mode="reduce-overhead" on a GPU."""

import gc
import importlib.util
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit
from frameloom.backend import cuda_graphs
from frameloom.runtime.build import cache

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton"),
]
MODES = ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


def cuda(*shape, **options):
    return torch.randn(*shape, device="cuda", **options)


@pytest.fixture
def made(monkeypatch):
    """The Replayed objects that compiles make."""
    kept = []

    class Kept(cuda_graphs.Replayed):
        def __init__(self, *args):
            super().__init__(*args)
            kept.append(self)

    monkeypatch.setattr(cuda_graphs, "Replayed", Kept)
    return kept


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "config", replace(cache.config, cache_dir=tmp_path))
    cache.shared_cache.cache_clear()
    yield cache.shared_cache()
    cache.shared_cache.cache_clear()


def layers(depth=10, width=64):
    made = [m for _ in range(depth) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*made).cuda().eval()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(64, 4096), (3, 40000), (1000, 40), (128, 128)])
def test_results(mode, shape, own_cache):
    functions = [
        lambda x: F.gelu(x) * 2 + 1,
        lambda x: torch.softmax(x, -1),
        lambda x: x.sum(0) + x.amax(0),
        lambda x: F.layer_norm(x, x.shape[-1:]) + x,
        lambda x: x[: x.shape[1]].t().contiguous() + 1,
    ]
    for f in functions:
        jitted = jit(f, mode=mode)
        for _ in range(4):
            x = cuda(*shape)
            torch.testing.assert_close(jitted(x), f(x), rtol=1e-4, atol=1e-4)


def test_what_was_found_is_kept(own_cache, monkeypatch):
    from frameloom.backend import launch_timer

    asked = []
    measure = launch_timer.measure
    monkeypatch.setattr(launch_timer, "measure", lambda *args: asked.append(1) or measure(*args))
    x = cuda(512, 1000)
    for _ in range(2):
        f = jit(lambda x: torch.softmax(x * 2, -1), mode="max-autotune")
        torch.testing.assert_close(f(x), torch.softmax(x * 2, -1))
        frameloom.reset()
    assert len(asked) == 1 and len(list(own_cache.directory.glob("??/*.tuning"))) == 1


def test_tuning_leaves_tensors_random_numbers_and_memory_alone(own_cache):
    f = jit(lambda x: x.mul_(2).add_(1), mode="max-autotune")
    x = cuda(1000, 1000)
    want = x * 2 + 1
    torch.manual_seed(3)
    first = torch.rand(5, device="cuda")
    torch.manual_seed(3)
    before = torch.cuda.memory_allocated()
    f(x)
    assert torch.equal(x, want)
    assert torch.equal(torch.rand(5, device="cuda"), first)
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + 4096


def test_calls_are_replayed_and_results_stay(made):
    model = layers()
    plain = layers()
    plain.load_state_dict(model.state_dict())
    jit(model, mode="reduce-overhead")
    with torch.no_grad():
        inputs = [cuda(16, 64) for _ in range(8)]
        got = [model(x) for x in inputs]
        for x, y in zip(inputs, got):
            torch.testing.assert_close(y, plain(x), rtol=1e-4, atol=1e-4)
        assert made and made[0].replays >= 5
        model[0].weight.mul_(2), plain[0].weight.mul_(2)
        torch.testing.assert_close(model(inputs[0]), plain(inputs[0]), rtol=1e-4, atol=1e-4)


def test_weights_that_move(made):
    model = jit(layers(), mode="reduce-overhead")
    x = cuda(16, 64)
    with torch.no_grad():
        for _ in range(3):
            model(x)
        kept = model[0].weight
        model[0].weight = torch.nn.Parameter(torch.zeros_like(kept))
        torch.testing.assert_close(model(x), model._call_impl(x), rtol=1e-4, atol=1e-4)
    assert made[0].replays >= 2


def test_what_the_program_writes(made):
    w = cuda(256, 256)  # large enough for the library

    def step(x, state):
        for _ in range(6):
            x = torch.relu(x @ w) * 0.1
        state.add_(x)
        return state * 2

    jitted, state = jit(step, mode="reduce-overhead"), cuda(64, 256)
    other = state.clone()
    for _ in range(6):
        x = cuda(64, 256)
        torch.testing.assert_close(jitted(x, state), step(x, other), rtol=1e-4, atol=1e-4)
        assert state._version == other._version  # recording computes nothing
    torch.testing.assert_close(state, other, rtol=1e-4, atol=1e-4)
    assert made and made[0].replays >= 4


def test_random_numbers_are_eagers():
    f = lambda x: F.dropout(x, 0.3) + torch.rand_like(x)
    jitted = jit(f, mode="reduce-overhead")
    x = cuda(64, 128)
    for _ in range(4):
        torch.manual_seed(1)
        want = f(x)
        torch.manual_seed(1)
        torch.testing.assert_close(jitted(x), want)


def test_another_stream_and_a_recording(made):
    model = jit(layers(), mode="reduce-overhead")
    x = cuda(16, 64)
    with torch.no_grad():
        for _ in range(3):
            want = model(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            got = model(x)
        side.synchronize()
        torch.testing.assert_close(got, want)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = model(x)
        graph.replay()
        torch.testing.assert_close(recorded, want)


def test_precision_of_products_is_looked_at_again(made):
    model = jit(layers(width=256), mode="reduce-overhead")
    x = cuda(256, 256)
    before = torch.get_float32_matmul_precision()
    try:
        with torch.no_grad():
            for precision in ("highest", "high", "highest"):
                torch.set_float32_matmul_precision(precision)
                for _ in range(3):
                    torch.testing.assert_close(model(x), model._call_impl(x), rtol=1e-6, atol=1e-6)
    finally:
        torch.set_float32_matmul_precision(before)


def test_memory_goes_with_the_jitted_function():
    def use():
        f = jit(layers(), mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                f(cuda(16, 64))

    use()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        use()
        gc.collect()
    assert torch.cuda.memory_allocated() == before
