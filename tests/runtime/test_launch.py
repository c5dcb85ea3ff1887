"""The launcher against a driver that is not there: what it is asked, in which order, on which stream and device."""

import ctypes

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import BufferSpec, DrawCall, LaunchCall, PlanSpec, ViewSpec
from tests.runtime.pretend_cuda import gpu, needs_no_cuda

__all__ = ["gpu"]  # fixtures
pytestmark = needs_no_cuda
S = (32,)
EXTRA = 2


def log(gpu):
    return gpu.pretend_log().contents


def load(name, device=0, shared=0, threads=128):
    return _runtime.load_cubin(b"ok", name, shared, EXTRA, threads, device)


def buffer(kind, offset=0):
    return BufferSpec(kind, S, (1,), torch.float32, torch.device("cpu"), offset)


def plan(inputs, buffers, steps, outputs, arena_bytes=0):
    first = tuple(buffer("input") for _ in range(inputs))
    views = tuple(ViewSpec(n, S, (1,), 0, torch.float32) for n in outputs)
    return _runtime.Plan(PlanSpec(inputs, first + tuple(buffers), tuple(steps), views, arena_bytes))


def aligned(n=32):
    return torch.arange(n, dtype=torch.float32)


def test_one_launch(gpu):
    p = plan(
        1,
        [buffer("output")],
        [LaunchCall(load("twice", threads=256, shared=8), (0, 1), (7, 2, 1))],
        [1],
    )
    x = aligned()
    assert torch.equal(p(x)[0], 2 * x)
    seen = log(gpu)
    assert (seen.launches, list(seen.grid), seen.threads, seen.shared) == (1, [7, 2, 1], 256, 8)
    assert (seen.stream, seen.last_extra_null) == (0x1000, 1)
    assert gpu.pretend_guards() == 0


def test_launches_in_order_through_scratch_memory(gpu):
    steps = [
        LaunchCall(load("twice"), (0, 2), (1, 1, 1)),
        LaunchCall(load("add"), (0, 2, 3), (1, 1, 1)),
        LaunchCall(load("add"), (3, 1, 4), (1, 1, 1)),
    ]
    p = plan(2, [buffer("arena"), buffer("arena", 128), buffer("output")], steps, [4], 256)
    x, y = aligned(), torch.randn(32)
    for _ in range(2):
        assert torch.equal(p(x, y)[0], 3 * x + y)


def test_inputs_can_be_written(gpu):
    p = plan(2, [], [LaunchCall(load("twice"), (0, 1), (1, 1, 1))], [])
    x, y = aligned(), torch.zeros(32)
    p(x, y)
    assert torch.equal(y, 2 * x)


def test_the_current_stream_counts(gpu):
    p = plan(1, [buffer("output")], [LaunchCall(load("twice"), (0, 1), (1, 1, 1))], [1])
    p(aligned())
    gpu.pretend_stream(ctypes.c_void_p(0x2000))
    p(aligned())
    assert log(gpu).stream == 0x2000


def test_another_device_is_current_during_the_call_only(gpu):
    steps = [
        LaunchCall(load("twice", device=1), (0, 1), (1, 1, 1)),
        LaunchCall(load("twice", device=2), (1, 2), (1, 1, 1)),
    ]
    p = plan(1, [buffer("output"), buffer("output")], steps, [2])
    x = aligned()
    assert torch.equal(p(x)[0], 4 * x)
    assert (log(gpu).last_device, log(gpu).stream) == (2, 0x1002)
    assert (gpu.pretend_current(), gpu.pretend_guards()) == (0, 0)


def test_unaligned_pointers_take_the_other_function(gpu):
    asked = []

    def other():
        asked.append(1)
        return load("any_twice")

    p = plan(1, [buffer("output")], [LaunchCall(load("twice"), (0, 1), (1, 1, 1), other)], [1])
    x = aligned(40)
    p(x[:32])
    assert (log(gpu).name, asked) == (b"twice", [])
    for _ in range(2):
        assert torch.equal(p(x[1:33])[0], 2 * x[1:33])
        assert (log(gpu).name, asked) == (b"any_twice", [1])
    p(x[4:36])
    assert log(gpu).name == b"twice"


def test_an_unaligned_function_that_cannot_be_made_is_an_error(gpu):
    def other():
        raise ValueError("no compiler")

    p = plan(1, [buffer("output")], [LaunchCall(load("twice"), (0, 1), (1, 1, 1), other)], [1])
    with pytest.raises(ValueError, match="no compiler"):
        p(aligned(40)[1:33])
    p(aligned())


def test_a_launch_that_fails_raises_with_the_kernels_name(gpu):
    step = LaunchCall(load("fails", device=1), (0, 1), (1, 1, 1), None, "relu_0")
    p = plan(1, [buffer("output")], [step], [1])
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid argument.*relu_0"):
        p(aligned())
    assert gpu.pretend_current() == 0


def test_code_that_cannot_be_loaded_raises(gpu):
    with pytest.raises(RuntimeError, match=r"image is invalid.*twice"):
        _runtime.load_cubin(b"no", "twice", 0, EXTRA, 128, 0)
    with pytest.raises(RuntimeError, match=r"symbol not found.*nowhere"):
        load("nowhere")
    with pytest.raises(RuntimeError, match="loading big"):
        load("big", shared=300 << 10)
    load("big", shared=200 << 10)


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 1, 65536), (1 << 31, 1, 1), (1, 1)])
def test_grids_are_checked(gpu, grid):
    with pytest.raises(ValueError, match="grid"):
        plan(1, [buffer("output")], [LaunchCall(load("twice"), (0, 1), grid)], [1])


def test_buffers_are_checked(gpu):
    with pytest.raises(ValueError, match="does not have"):
        plan(1, [], [LaunchCall(load("twice"), (0, 7), (1, 1, 1))], [])


class Generator:
    """What a plan calls of one."""

    def __init__(self, seed=2**64 - 1, offset=8):
        self.seed, self.offset = seed, offset

    def call(self, increment=4, **more):
        return DrawCall(
            lambda: self.seed, lambda: self.offset, self.go_on, increment, 1, 2, device=0, **more
        )

    def go_on(self, offset):
        self.offset = offset


def drawing(generator, **more):
    """x -> 2 * x, with a draw; otherwise a string."""
    number = BufferSpec("number", (), (), torch.int64, torch.device("cpu"))
    return _runtime.Plan(
        PlanSpec(
            1,
            (buffer("input"), number, number, buffer("output")),
            (generator.call(**more), LaunchCall(load("twice"), (0, 3), (1, 1, 1))),
            (ViewSpec(3, S, (1,), 0, torch.float32),),
            0,
            otherwise=lambda x: ("otherwise", x),
        )
    )


def test_a_draw_lets_the_generator_go_on(gpu):
    generator = Generator()
    p = drawing(generator, increment=12)
    for n in (20, 32):
        assert torch.equal(p(aligned())[0], 2 * aligned())
        assert generator.offset == n


def test_nothing_is_drawn_while_a_graph_is_recorded(gpu):
    generator, x = Generator(), aligned()
    p = drawing(generator)
    gpu.pretend_capture(1)
    assert p(x) == ("otherwise", x)
    assert generator.offset == 8
    assert log(gpu).launches == 0


def test_what_a_draw_asks_of_addresses(gpu):
    generator = Generator()
    p = drawing(generator, aligned=0)
    memory = aligned(80)
    start = -memory.data_ptr() // 4 % 8
    assert torch.equal(p(memory[start : start + 32])[0], 2 * memory[start : start + 32])
    assert p(memory[start + 4 : start + 36])[0] == "otherwise"
    assert generator.offset == 12


def test_a_generator_that_fails(gpu):
    generator = Generator()
    generator.go_on = lambda offset: 1 / 0
    with pytest.raises(ZeroDivisionError):
        drawing(generator)(aligned())


def test_numbers_have_to_be_drawn_first(gpu):
    number = BufferSpec("number", (), (), torch.int64, torch.device("cpu"))
    steps = (LaunchCall(load("twice"), (0, 1), (1, 1, 1)),)
    with pytest.raises(ValueError, match="before the call"):
        _runtime.Plan(PlanSpec(1, (buffer("input"), number), steps, (), 0))
