"""Launches behind each other as one CUDA graph, against a driver that is not there."""

import ctypes

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import BufferSpec, LaunchCall, PlanSpec, ViewSpec
from tests.runtime.pretend_cuda import gpu, needs_no_cuda
from tests.runtime.test_launch import aligned, buffer, load, log, plan

__all__ = ["gpu"]  # fixtures
pytestmark = needs_no_cuda
CPU = torch.device("cpu")


def chain(*names, last=(1, 1, 1), other=None):
    """A plan that applies these functions to its input, one after another."""
    steps = [LaunchCall(load(name), (k, k + 1), last, other) for k, name in enumerate(names)]
    return plan(1, [buffer("output") for _ in names], steps, [len(names)])


def test_a_second_call_is_one_graph(gpu):
    p, x = chain("twice", "twice", "any_twice"), aligned()
    for graphs in (0, 1, 2):
        assert torch.equal(p(x)[0], 8 * x)
        assert (log(gpu).graphs, log(gpu).alive) == (graphs, graphs > 0)
    assert log(gpu).launches == 9


def test_other_addresses_are_told_to_the_graph(gpu):
    p, x, y = chain("twice"), aligned(), torch.randn(32)
    kept = [p(x)[0] for _ in range(3)] + [p(y)[0], p(x)[0]]
    assert log(gpu).graphs == 4
    for made, given in zip(kept, (x, x, x, y, x), strict=True):
        assert torch.equal(made, 2 * given)


def test_addresses_that_stay_are_not(gpu):
    p = plan(2, [], [LaunchCall(load("twice"), (0, 1), (1, 1, 1))], [])
    x, y = aligned(), torch.zeros(32)
    for _ in range(4):
        p(x, y)
    assert (log(gpu).graphs, log(gpu).updates) == (3, 0)


def test_a_graph_keeps_to_its_stream(gpu):
    p, x = chain("twice"), aligned()
    for _ in range(2):
        p(x)
    gpu.pretend_stream(ctypes.c_void_p(0x2000))
    assert torch.equal(p(x)[0], 2 * x)
    assert (log(gpu).graphs, log(gpu).stream) == (1, 0x2000)


def test_a_stream_that_is_recorded_gets_plain_launches(gpu):
    p, x = chain("twice"), aligned()
    p(x)
    gpu.pretend_capture(1)
    for _ in range(3):
        assert torch.equal(p(x)[0], 2 * x)
    assert (log(gpu).graphs, log(gpu).launches) == (0, 4)


def test_unaligned_pointers_get_their_own_function(gpu):
    p, x = chain("twice", other=lambda: load("any_twice")), aligned(40)
    for start in (0, 0, 1, 4):
        assert torch.equal(p(x[start : start + 32])[0], 2 * x[start : start + 32])
        assert log(gpu).name == (b"any_twice" if start == 1 else b"twice")
    assert log(gpu).graphs == 2


def test_devices_have_graphs_of_their_own(gpu):
    steps = [LaunchCall(load("twice", device=d), (d, d + 1), (1, 1, 1)) for d in (0, 1)]
    p, x = plan(1, [buffer("output"), buffer("output")], steps, [2]), aligned()
    for _ in range(2):
        assert torch.equal(p(x)[0], 4 * x)
    assert (log(gpu).graphs, log(gpu).last_device, log(gpu).stream) == (2, 1, 0x1001)
    assert gpu.pretend_current() == 0


def test_the_graph_goes_with_the_plan(gpu):
    p, x = chain("twice"), aligned()
    p(x), p(x)
    assert log(gpu).alive == 1
    del p
    assert log(gpu).alive == 0


def test_a_graph_that_fails_leaves_the_error_to_the_launch(gpu):
    p, x = chain("fails"), aligned()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="invalid argument"):
            p(x)
    assert (log(gpu).graphs, log(gpu).alive) == (1, 0)


@pytest.mark.parametrize("owned", [False, True])
def test_where_a_large_input_goes_there_is_room_for_what_comes(gpu, owned):
    large = 1 << 18
    inputs = [BufferSpec("input", (large,), (1,), torch.float32, CPU)]
    outputs = [BufferSpec("output", (large,), (1,), torch.float32, CPU) for _ in range(2)]
    steps = tuple(LaunchCall(load("twice"), (k, k + 1), (1, 1, 1)) for k in range(2))
    views = tuple(ViewSpec(k, (large,), (1,), 0, torch.float32) for k in (1, 2))
    p = _runtime.Plan(PlanSpec(1, (*inputs, *outputs), steps, views, 0, owned=owned))
    x = torch.randn(large)
    for _ in range(2):
        assert torch.equal(p.consume([x])[1][:32], 4 * x[:32])
    assert log(gpu).graphs == (2 if owned else 1)
