"""Scatters by both code generators and the interpreter of the IR, against eager."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom.codegen.partition import launches
from frameloom.ir import interp
from frameloom.ir.fuse import fuse
from frameloom.ir.lower import lower
from frameloom.ir.program import Check, Kernel, View
from frameloom.ir.scatter import is_scatter
from frameloom.ir.text import parse, show
from frameloom.ir.verify import verify
from tests.codegen.kernels import compile_kernel
from tests.codegen.triton_kernels import TINY, run
from tests.ir.helpers import assert_same, clones, flat, graph_of


def by_cpp(kernel, tensors):
    compile_kernel(kernel)(tensors)


def by_triton(kernel, tensors):
    run(launches(kernel, TINY), tensors, TINY)


def execute(program, inputs, run_kernel):
    """The outputs, where kernels are run by `run_kernel`."""
    memory = {b.name: t for b, t in zip(program.inputs, inputs, strict=True)}
    for step in program.steps:
        if isinstance(step, Kernel):
            for s in step.stores:
                if s.buffer.name not in memory:
                    b = s.buffer
                    memory[b.name] = torch.empty_strided(
                        b.shape, b.strides, dtype=b.dtype.to_torch()
                    )
            run_kernel(step, memory)
        else:
            assert isinstance(step, Check) and not memory[step.buffer.name].any(), step
    named = {b: memory[b.name] for s in program.steps if isinstance(s, Kernel) for b in written(s)}
    named.update(zip(program.inputs, inputs, strict=True))
    return [interp.view(o, named) if isinstance(o, View) else o for o in program.outputs]


def written(kernel):
    return [s.buffer for s in kernel.stores]


def check(fn, *inputs, triton=True, scatters=1):
    """`fn` in eager, by the interpreter of the IR, in C++ and in Triton; returns the fused program."""
    gm = graph_of(fn, *inputs)
    expected = flat(gm(*clones(inputs)))
    program = lower(gm.graph, gm)
    verify(program, "lower")
    assert_same(interp.run(program, clones(inputs)), expected)
    program = fuse(program)
    verify(program, "fuse")
    assert parse(show(program)) == program
    kernels = [s for s in program.steps if isinstance(s, Kernel)]
    assert sum(map(is_scatter, kernels)) == scatters, show(program)
    assert_same(execute(program, clones(inputs), by_cpp), expected)
    if triton:
        assert_same(execute(program, clones(inputs), by_triton), expected)
    return program


def indices(extent, *shape):
    return torch.randint(0, extent, shape)


def test_sums_at_repeated_places():
    check(lambda x, i, v: x.scatter_add(0, i, v), torch.randn(7), indices(7, 50), torch.randn(50))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_sums_along_any_dimension(dim):
    x, v = torch.randn(5, 6, 7), torch.randn(4, 5, 40)
    i = indices(5, 3, 5, 6)
    check(lambda x, i, v: x.scatter_add(dim, i, v), x, i, v)
