"""Pooling and interpolation as Triton texts, interpreted on the CPU, and compiled for an H200."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from frameloom.codegen.schedule.partition import launches
from frameloom.codegen.triton.chip import H200
from frameloom.codegen.triton.module import generate
from frameloom.ir.program import Kernel
from frameloom.runtime.build.triton_compiler import build
from tests.codegen.triton_kernels import run
from tests.helpers import jit_for_test

X = torch.randn(2, 4, 9, 11)
X[0, 0, 2:4, 3:6] = float("nan")
LAST = X.to(memory_format=torch.channels_last)
VOLUME = torch.randn(1, 2, 4, 5, 6)
CASES = {
    "max": (lambda x: F.max_pool2d(x.relu(), 3, 2, 1), X),
    "max and indices": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), X),
    "max of bf16": (lambda x: F.max_pool2d(x.relu(), 3, 2, 1), LAST.bfloat16()),
    "max of volumes": (lambda x: F.max_pool3d(x, 3, 2, 1), VOLUME),
    "mean with borders": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), X),
    "mean of large windows": (lambda x: F.avg_pool2d(x, (9, 5)), X),
    "windows of several sizes": (lambda x: F.adaptive_avg_pool2d(x, (4, 5)), X),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2) + 1, X),
    "nearest by a fraction": (lambda x: F.interpolate(x, size=(13, 7), mode="nearest-exact"), X),
    "linear": (lambda x: F.interpolate(x.relu(), size=(13, 22), mode="bilinear"), LAST),
    "cubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), X),
}


@pytest.mark.parametrize("case", CASES)
def test_as_eager(case):
    fn, x = CASES[case]
    jitted = jit_for_test(fn)
    jitted(x)
    program = jitted.explanation.graphs[0].fused
    assert all(isinstance(s, Kernel) for s in program.steps)
    kernels = [k for s in program.steps for k in launches(s, H200)]
    memory = x.as_strided((x.numel(),), (1,)).clone()
    tensors = {program.inputs[0].name: memory}
    run(kernels, tensors)
    want = fn(x)
    for view, w in zip(program.outputs, want if isinstance(want, tuple) else (want,), strict=True):
        found = torch.as_strided(tensors[view.buffer.name], view.shape, view.strides)
        torch.testing.assert_close(found, w, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_compiled():
    sources = []
    for case in ("max and indices", "max of bf16", "windows of several sizes", "linear"):
        jitted = jit_for_test(CASES[case][0])
        jitted(CASES[case][1])
        steps = jitted.explanation.graphs[0].fused.steps
        sources += generate([k for s in steps for k in launches(s, H200)], H200)
    assert all(build(sources, H200.arch))
