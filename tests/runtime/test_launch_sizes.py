"""Launches whose grids and parameters change from call to call, against a driver that is not there."""

import pytest
import torch

from frameloom.runtime.spec import LaunchCall
from tests.runtime.pretend_cuda import gpu, needs_no_cuda
from tests.runtime.sized_plans import R, Refused, flat, plan, view
from tests.runtime.test_launch import load, log

__all__ = ["gpu"]  # fixtures
pytestmark = needs_no_cuda
SIZES = [("dim", 0, 0), ("const", 8), ("add", 0, 1), ("const", -1), ("add", 2, 3), ("floordiv", 4, 1)]  # fmt: skip
LENGTH, BLOCKS = 0, 5  # of blocks of 8


GRID = (R(BLOCKS), 1, 1)


def scaled(grid=GRID, parameters=((LENGTH, "i32"), (1, "i64")), sizes=SIZES, count=1):
    """x -> 8**count * x."""
    steps = [LaunchCall(load("scale"), (i, i + 1), grid, sizes=parameters) for i in range(count)]
    middle = [flat("output", R(LENGTH)) for _ in range(count - 1)]
    return plan(
        [flat("input", R(LENGTH)), *middle, flat("output", R(LENGTH))],
        sizes,
        steps,
        [view(count, (R(LENGTH),), (1,))],
    )


def test_grid_and_parameters_follow_the_sizes(gpu):
    p = scaled()
    for n in (20, 20, 1, 64, 20):
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 8 * x)
        assert list(log(gpu).grid) == [-(-n // 8), 1, 1] and log(gpu).last_extra_null


def test_launches_as_one_graph_follow_the_sizes(gpu):
    p = scaled(count=3)
    for n in (20, 20, 24, 24, 7, 100, 100):
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 512 * x)
        assert log(gpu).grid[0] == -(-n // 8) and log(gpu).last_extra_null
    assert log(gpu).graphs == 6 and log(gpu).launches == 7 * 3


@pytest.mark.parametrize("count", [1, 3])
def test_sizes_that_are_multiples_have_a_function_of_their_own(gpu, count):
    asked = []

    def for_any():
        asked.append(1)
        return load("scale", threads=64)

    steps = [
        LaunchCall(load("scale"), (i, i + 1), GRID, for_any, "", ((LENGTH, "i32"), (1, "i64")), (LENGTH,))
        for i in range(count)
    ]  # fmt: skip
    middle = [flat("output", R(LENGTH)) for _ in range(count - 1)]
    buffers = [flat("input", R(LENGTH)), *middle, flat("output", R(LENGTH))]
    p = plan(buffers, SIZES, steps, [view(count, (R(LENGTH),), (1,))])
    for n in (32, 32, 32, 48, 20, 20, 32, 33, 64):
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 8**count * x)
        assert log(gpu).threads == (64 if n % 16 else 128) and log(gpu).last_extra_null
    assert len(asked) == count and log(gpu).graphs == 8


@pytest.mark.parametrize("count", [1, 3])
def test_large_sizes_have_a_function_of_their_own(gpu, count):
    asked = []

    def of(threads):
        def make():
            asked.append(threads)
            return load("scale", threads=threads)

        return make

    both = ((LENGTH, "i32"), (1, "i64"))
    steps = [
        LaunchCall(load("scale"), (i, i + 1), GRID, of(32), "", both, (LENGTH,), (LENGTH, 48), of(64))
        for i in range(count)
    ]  # fmt: skip
    middle = [flat("output", R(LENGTH)) for _ in range(count - 1)]
    buffers = [flat("input", R(LENGTH)), *middle, flat("output", R(LENGTH))]
    p = plan(buffers, SIZES, steps, [view(count, (R(LENGTH),), (1,))])
    for n in (32, 48, 48, 64, 64, 65, 32, 33, 80):
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 8**count * x)
        assert log(gpu).threads == (32 if n % 16 else 64 if n > 48 else 128)
        assert log(gpu).last_extra_null
    assert sorted(asked) == [32] * count + [64] * count and log(gpu).graphs == 8
    with pytest.raises(ValueError, match="function beyond"):
        call = LaunchCall(load("scale"), (0, 1), GRID, None, "", both, (), (LENGTH, 48))
        plan(
            [flat("input", R(LENGTH)), flat("output", R(LENGTH))],
            SIZES,
            [call],
            [view(1, (R(LENGTH),), (1,))],
        )


def test_nothing_is_launched_without_blocks(gpu):
    p = scaled(count=2)
    for n in (0, 8, 8, 0, 8):
        before = log(gpu).launches
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 64 * x)
        assert log(gpu).launches - before == (2 if n else 0)


def test_parameters_that_do_not_fit_are_refused(gpu):
    p = scaled(
        grid=(1, 1, 1),
        parameters=((2, "i32"), (1, "i64")),
        sizes=[("dim", 0, 0), ("const", 2**30), ("mul", 0, 1)],
    )
    for _ in range(2):
        with pytest.raises(Refused):
            p(torch.zeros(2))
        p(torch.zeros(0))
    assert log(gpu).launches == 2
    negative = scaled((1, 1, 1), ((1, "i32"), (1, "i64")), [("dim", 0, 0), ("neg", 0)])
    negative(torch.zeros(5))
    with pytest.raises(ValueError, match="i32 or i64"):
        scaled(parameters=((0, "i16"), (1, "i64")))
    with pytest.raises(ValueError, match="size that it does not have"):
        scaled(parameters=((0, "i32"), (9, "i64")))


@pytest.mark.parametrize("direction", [0, 1, 2])
def test_grids_that_no_gpu_has_are_refused(gpu, direction):
    sizes = [("dim", 0, 0), ("const", 2**30), ("mul", 0, 1), ("const", 2), ("sub", 0, 3)]
    for size, bad, good in ((2, 2, 0), (4, 1, 2)):
        grid = [1, 1, 1]
        grid[direction] = R(size)
        p = scaled(tuple(grid), sizes=sizes)
        with pytest.raises(Refused):
            p(torch.zeros(bad))
        p(torch.zeros(good))
    assert log(gpu).launches == 0


def test_unaligned_addresses_and_other_streams(gpu):
    p = plan(
        [flat("input", R(0)), flat("output", R(0))],
        SIZES,
        [
            LaunchCall(
                load("any_twice"),
                (0, 1),
                (R(BLOCKS), 1, 1),
                lambda: load("scale"),
                sizes=((LENGTH, "i32"), (1, "i64")),
            )
        ],
        [view(1, (R(0),), (1,))],
    )
    x = torch.randn(41)[1:]
    assert torch.equal(p(x)[0], 8 * x)


def test_scratch_memory_on_a_gpu_follows_the_sizes(gpu):
    """The CPU's here, as all memory of the pretended GPU."""
    p = plan(
        [flat("input", R(0)), flat("arena", R(0)), flat("output", R(0))],
        [*SIZES, ("const", 4), ("mul", 0, 6)],
        [
            LaunchCall(load("scale"), (i, i + 1), (R(BLOCKS), 1, 1), sizes=((0, "i32"), (1, "i64")))
            for i in range(2)
        ],
        [view(2, (R(0),), (1,))],
        arena_bytes=R(7),
    )
    for n in (8, 8, 8000, 3, 1_000_000, 3):
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 64 * x)
