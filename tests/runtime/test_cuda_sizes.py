"""Plans on a real GPU whose sizes change from call to call: parameters, grids, scratch memory, launches as one graph."""

import pytest
import torch

from frameloom.codegen.triton.launch import LaunchSource
from frameloom.runtime import _runtime
from frameloom.runtime.build.launch import load
from frameloom.runtime.build.triton_compiler import build, unaligned
from frameloom.runtime.spec import (
    BufferSpec,
    LaunchCall,
    PlanSpec,
    SizeCall,
    SizeRef,
    ViewSpec,
)
from tests.runtime.pointwise_sources import arch

pytestmark = pytest.mark.gpu
BLOCK = 256
TEXT = f"""
import triton
import triton.language as tl

@triton.jit
def scale(a, out, n, by):
    i = tl.program_id(0).to(tl.int64) * {BLOCK} + tl.arange(0, {BLOCK})
    tl.store(out + i, tl.load(a + i, mask=i < n, other=0) * by, mask=i < n)
"""
SOURCE = LaunchSource(TEXT, "scale", ("*fp32", "*fp32", "i32", "i64"), (1, 1, 1), warps=4)
SIZES = [
    ("dim", 0, 0), ("const", 3), ("const", BLOCK), ("const", BLOCK - 1), ("add", 0, 3), ("floordiv", 4, 2),
    ("const", 4), ("mul", 0, 6),
]  # fmt: skip
LENGTH, THREE, BLOCKS, BYTES = map(SizeRef, (0, 1, 5, 7))


class Refused(BaseException):
    pass


def scaled(count, kind):
    """x -> 3**count * x, by way of buffers of this kind."""
    (cubin,) = build([SOURCE], arch())
    function = load(cubin, 0)
    where = torch.device("cuda", 0)
    kinds = ["input", *[kind] * (count - 1), "output"]
    buffers = tuple(BufferSpec(k, (LENGTH,), (1,), torch.float32, where) for k in kinds)
    steps = [
        LaunchCall(
            function,
            (i, i + 1),
            (BLOCKS, 1, 1),
            lambda: load(unaligned(SOURCE, arch()), 0),
            "scale",
            ((0, "i32"), (1, "i64")),
        )
        for i in range(count)
    ]
    return _runtime.Plan(
        PlanSpec(
            1,
            buffers,
            tuple(steps),
            (ViewSpec(count, (LENGTH,), (1,), 0, torch.float32),),
            BYTES if kind == "arena" else 0,
            sizes=tuple(SizeCall(op, tuple(operands)) for op, *operands in SIZES),
            refused=Refused,
        )
    )


@pytest.mark.parametrize(
    ("count", "kind"), [(1, "output"), (2, "arena"), (4, "output"), (4, "transient")]
)
def test_launches_follow_the_sizes(count, kind):
    p = scaled(count, kind)
    for n in (1000, 1000, 1000, 5, 5, 0, 1, 100_000, 100_000, 1 << 20, 1000, 1000):
        x = torch.randn(n + 1, device="cuda")
        for view in (x[:n], x[1:]):
            (out,) = p(view)
            torch.testing.assert_close(out, view * 3**count)


def test_sizes_on_streams_of_their_own():
    p = scaled(2, "arena")
    streams = [torch.cuda.Stream() for _ in range(3)]
    inputs = [torch.full((1000 * (i + 1),), float(i), device="cuda") for i in range(3)]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for stream, x in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                results.append((p(x)[0], x))
    torch.cuda.synchronize()
    assert all(torch.equal(out, 9 * x) for out, x in results)
