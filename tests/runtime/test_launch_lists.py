"""Lists of kernels launched against a driver that is not there: what their tables hold, and when they are written."""

import ctypes

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import BufferSpec, ListCall, PlanSpec
from tests.runtime.pretend_cuda import gpu, needs_no_cuda
from tests.runtime.test_launch import load, log

__all__ = ["gpu"]  # fixtures
pytestmark = needs_no_cuda
CPU = torch.device("cpu")
BLOCK = 8
WORDS = 508  # that one launch writes


def constant(values, dtype):
    t = torch.tensor(values, dtype=dtype)
    return BufferSpec("constant", tuple(t.shape), t.stride(), dtype, CPU, constant=t)


def doubling(sizes, name="list_twice", columns=2, start=0):
    """A plan of inputs x0, y0, x1, y1, ... that sets y = 2 * x[start:]."""
    n = len(sizes)
    inputs = [
        BufferSpec("input", (s + start * (1 - k),), (1,), torch.float32, CPU)
        for s in sizes
        for k in range(2)
    ]
    blocks = [(r, k) for r, s in enumerate(sizes) for k in range(-(-s // BLOCK))]
    others = [
        BufferSpec("table", (2 * n,), (1,), torch.int64, CPU),
        constant([[s] for s in sizes], torch.int64),
        constant(blocks, torch.int32),
    ]
    places = tuple((i, 4 * start * (1 - i % 2)) for i in range(2 * n))
    step = ListCall(
        load(name), 2 * n, 2 * n + 1, 2 * n + 2, places, columns, (len(blocks), 1, 1), "l"
    )
    return _runtime.Plan(PlanSpec(2 * n, (*inputs, *others), (step,), (), 0))


def tensors(sizes, start=0):
    return [t for s in sizes for t in (torch.randn(s + start), torch.zeros(s))]


def check(p, given, start=0):
    p(*given)
    for x, y in zip(given[::2], given[1::2], strict=True):
        assert torch.equal(y, 2 * x[start:])


def test_rows_of_any_size(gpu):
    sizes = [3, 8, 100, 1]
    check(doubling(sizes), tensors(sizes))
    seen = log(gpu)
    assert (seen.launches, seen.writes, list(seen.grid)) == (1, 1, [16, 1, 1])


def test_rows_that_start_inside_a_buffer(gpu):
    sizes = [3, 20]
    check(doubling(sizes, start=5), tensors(sizes, start=5), start=5)


def test_a_table_is_written_only_where_an_address_has_changed(gpu):
    sizes = [5] * 4
    p, given = doubling(sizes), tensors(sizes)
    check(p, given)
    check(p, given)
    assert log(gpu).writes == 1
    given[2] = torch.randn(5)
    check(p, given)
    check(p, given)
    assert log(gpu).writes == 2


@pytest.mark.parametrize("rows", [253, 254, 255, 508, 509, 1200])
def test_long_tables_are_written_in_parts(gpu, rows):
    sizes = [1 + k % 9 for k in range(rows)]
    p, given = doubling(sizes), tensors(sizes)
    check(p, given)
    assert log(gpu).writes == -(-2 * rows // WORDS)
    gpu.pretend_log().contents.writes = 0
    given[::2] = [torch.randn_like(t) for t in given[::2]]
    check(p, given)
    assert log(gpu).writes == -(-rows // WORDS), "the addresses of y are what they were"


def test_another_stream_gets_a_table_of_its_own(gpu):
    sizes = [5] * 4
    p, given = doubling(sizes), tensors(sizes)
    check(p, given)
    gpu.pretend_stream(ctypes.c_void_p(0x2000))
    check(p, given)
    assert (log(gpu).writes, log(gpu).stream) == (2, 0x2000)


def test_a_recorded_call_writes_its_table(gpu):
    sizes = [5] * 4
    p, given = doubling(sizes), tensors(sizes)
    check(p, given)
    gpu.pretend_capture(1)
    check(p, given)
    gpu.pretend_capture(0)
    assert log(gpu).writes == 2
    check(p, given)
    assert log(gpu).writes == 3, "the recording keeps the table it has"


def test_after_a_failed_launch_the_table_is_whole(gpu):
    p, given = doubling([5] * 4, "fails"), tensors([5] * 4)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="CUDA error"):
            p(*given)


def test_a_table_has_the_size_of_the_rows(gpu):
    with pytest.raises(ValueError, match="rows"):
        doubling([5] * 4, columns=3)
