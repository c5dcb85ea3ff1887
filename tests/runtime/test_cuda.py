"""Plans on a real GPU: streams, devices, alignment, memory, recording, errors."""

import subprocess
import sys
import threading

import pytest
import torch

from frameloom.runtime.spec import ExternCall, ViewSpec
from tests.runtime.pointwise_sources import launch, plan, source

pytestmark = pytest.mark.gpu
N = 5000


def twice(n=N, device=0):
    step = launch(source("twice", "a * 2", n), (0, 1), device)
    return plan(n, 1, ["output"], [step], [1], device)


def through_scratch(n=N):
    """3 * a + b, by way of the arena."""
    steps = [
        launch(source("three", "a * 3", n), (0, 2)),
        launch(source("sum_of", "a + b", n, inputs=2), (2, 1, 3)),
    ]
    return plan(n, 2, ["arena", "output"], steps, [3])


def test_one_launch():
    x = torch.randn(N, device="cuda")
    assert torch.equal(twice()(x)[0], 2 * x)


def test_several_launches_and_scratch_memory():
    p = through_scratch()
    for _ in range(3):
        x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
        assert torch.equal(p(x, y)[0], 3 * x + y)


def test_an_input_is_written():
    step = launch(source("into", "a + 1", N), (0, 0))
    x = torch.zeros(N, device="cuda")
    p = plan(N, 1, [], [step], [])
    p(x)
    p(x)
    assert torch.equal(x, torch.full_like(x, 2))


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_views_at_any_offset(offset):
    p = twice()
    x = torch.randn(N + 8, device="cuda")[offset : offset + N]
    for _ in range(2):
        assert torch.equal(p(x)[0], 2 * x)


def test_launches_go_to_the_current_stream():
    p, q = twice(), through_scratch()
    x = torch.zeros(N, device="cuda")
    p(x), q(x, x)  # loaded, scratch memory of the default stream kept
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        x.fill_(1)
        (out,), (other,) = p(x), q(x, x)
    side.synchronize()
    assert torch.equal(out, torch.full_like(out, 2))
    assert torch.equal(other, torch.full_like(out, 4))


def test_scratch_memory_is_not_shared_between_streams():
    p = through_scratch(1 << 20)
    streams = [torch.cuda.Stream() for _ in range(3)]
    inputs = [torch.full((1 << 20,), float(i), device="cuda") for i in range(3)]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for s, x in zip(streams, inputs):
            with torch.cuda.stream(s):
                results.append((x, p(x, x)[0]))
    torch.cuda.synchronize()
    assert all(torch.equal(out, 4 * x) for x, out in results)


def test_a_fresh_thread():
    p, results = through_scratch(), []
    x = torch.randn(N, device="cuda")
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: results.append(p(x, x)[0]))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(results[0], 3 * x + x)


def test_many_threads_at_once():
    p, wrong = through_scratch(), []

    def work():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(200):
                x = torch.full((N,), float(i), device="cuda")
                if p(x, x)[0][-1].item() != 4 * i:
                    wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


@pytest.mark.skipif("torch.cuda.device_count() < 2")
def test_another_device():
    p = twice(device=1)
    x = torch.randn(N, device="cuda:1")
    out = p(x)[0]
    assert out.device == x.device
    assert torch.cuda.current_device() == 0
    assert torch.equal(out, 2 * x)
    thread = threading.Thread(target=lambda: p(x))
    thread.start()
    thread.join()
    torch.cuda.synchronize(1)


@pytest.mark.skipif("torch.cuda.device_count() < 2")
def test_the_plan_of_another_device_while_that_is_current():
    p = twice(device=1)
    with torch.cuda.device(1):
        x = torch.randn(N, device="cuda")
        assert torch.equal(p(x)[0], 2 * x)


def test_memory_is_pytorchs():
    n = 1 << 25  # 128 MB of scratch memory, which is not kept
    p = through_scratch(n)
    x = torch.randn(n, device="cuda")
    p(x, x)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = p(x, x)[0]
    assert torch.cuda.memory_allocated() == before + 4 * n
    assert torch.cuda.max_memory_allocated() == before + 8 * n
    del out
    assert torch.cuda.memory_allocated() == before


def test_what_is_large_lives_from_its_first_use_to_its_last():
    n = 1 << 20
    steps = [launch(source(f"step{k}", "a + 1", n), (k, k + 1)) for k in range(6)]
    p = plan(n, 1, ["transient"] * 5 + ["output"], steps, [6])
    x = torch.randn(n, device="cuda")
    for _ in range(3):
        torch.testing.assert_close(p(x)[0], x + 6)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = p(x)[0]
    assert torch.cuda.max_memory_allocated() == before + 2 * 4 * n
    assert torch.cuda.memory_allocated() == before + out.nbytes


def test_small_scratch_memory_goes_with_the_plan():
    x = torch.randn(N, device="cuda")
    before = torch.cuda.memory_allocated()
    p = through_scratch()
    p(x, x)
    p(x, x)
    del p
    assert torch.cuda.memory_allocated() == before


def test_a_plan_can_be_recorded_into_a_graph():
    p = through_scratch()
    x = torch.zeros(N, device="cuda")
    p(x, x)
    torch.cuda.synchronize()
    graphs = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            (out,) = p(x, x)
        graphs.append((graph, out))
    p(x, x)
    for value in (1.0, 2.0):
        x.fill_(value)
        for graph, out in graphs:
            graph.replay()
            assert torch.equal(out, 4 * x)


def test_library_calls_between_launches():
    n = 64 * 64
    aten = torch.ops.aten
    square = lambda b: ViewSpec(b, (64, 64), (64, 1), 0, torch.float32)
    steps = [
        launch(source("twice", "a * 2", n), (0, 1)),
        ExternCall("aten.mm.default", aten.mm.out, (square(1), square(0)), {}, (2,), True),
        launch(source("plus_one", "a + 1", n), (2, 3)),
    ]
    p = plan(n, 1, ["arena", "arena", "output"], steps, [3])
    x = torch.randn(64, 64, device="cuda")
    for _ in range(2):
        torch.testing.assert_close(p(x.view(-1))[0].view(64, 64), (2 * x) @ x + 1)


FAILING = """
import torch
from tests.runtime.pointwise_sources import launch, plan, source
made = source("checked", "a", 100, debug=True, before='    tl.device_assert(a < 5, "too large")\\n')
p = plan(100, 1, ["output"], [launch(made, (0, 1))], [1])
x = torch.zeros(100, device="cuda")
p(x)
torch.cuda.synchronize()
print("good", flush=True)
x[7] = 9
try:
    p(x)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("raised", type(error).__name__)
"""


def test_an_assertion_on_the_device_fails_as_eagers_do():
    done = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "good"
    assert done.stdout.splitlines()[1].startswith("raised")
    assert "too large" in done.stderr


def test_too_much_shared_memory_is_an_error():
    from frameloom.runtime import _runtime
    from frameloom.runtime.build.triton_compiler import build
    from tests.runtime.pointwise_sources import arch

    (cubin,) = build([source("twice", "a * 2", N)], arch())
    with pytest.raises(RuntimeError, match=r"CUDA error.*twice"):
        _runtime.load_cubin(cubin.data, "twice", 1 << 20, cubin.extra, 128, 0)
    torch.zeros(1, device="cuda")
