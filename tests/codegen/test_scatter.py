"""Scatters by both code generators and the interpreter of the IR, against eager."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom.codegen.schedule.partition import launches
from frameloom.ir import interp
from frameloom.ir.lower import lower
from frameloom.ir.passes.fuse import fuse
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


def zeros_like(b):
    found = torch.empty_strided(b.shape, b.strides, dtype=b.dtype.to_torch())
    return found.zero_()


def execute(program, inputs, run_kernel):
    """The outputs, where kernels are run by `run_kernel`."""
    memory = {b.name: t for b, t in zip(program.inputs, inputs, strict=True)}
    for step in program.steps:
        if isinstance(step, Kernel):
            for s in step.stores:
                if s.buffer.name not in memory:
                    b = s.buffer
                    memory[b.name] = zeros_like(b)
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64, torch.float16], ids=str)
def test_sums_of_other_types(dtype):
    # Few enough that 16-bit floats are exact.
    x, v = (torch.randint(0, 9, (n,)).to(dtype) for n in (7, 40))
    check(lambda x, i, v: x.index_add(0, i, v), x, indices(7, 40), v)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.uint8, torch.float32], ids=str)
def test_places_are_set(dtype):
    # Every place once: on a GPU nothing says which of several is last.
    x, v = torch.randn(30, 7).to(dtype), torch.randn(20, 7).to(dtype)
    i = torch.randperm(30)[:20]
    check(lambda x, i, v: x.index_copy(0, i, v), x, i, v)
    check(lambda x, i, v: x.index_put((i - 30,), v), x, i, v)
    if dtype != torch.bfloat16:  # Triton's interpreter has no such constants
        check(lambda x, i: x.index_fill(0, i, 1), x, i)


@pytest.mark.parametrize("kind", ["amax", "amin"])
def test_extremes_of_integers(kind):
    x, v = torch.randint(-50, 50, (7,)), torch.randint(-50, 50, (40,))
    check(lambda x, i, v: x.scatter_reduce(0, i, v, kind), x, indices(7, 40), v)


@pytest.mark.parametrize("kind", ["prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_other_reductions_on_the_cpu(kind, dtype):
    x, v = torch.randn(7, dtype=dtype), torch.randn(40, dtype=dtype)
    x[1], v[3] = torch.nan, torch.nan
    check(lambda x, i, v: x.scatter_reduce(0, i, v, kind), x, indices(7, 40), v, triton=False)


def test_means():
    x, v, i = torch.randn(7, 5), torch.randn(40, 5), indices(7, 40, 5)
    mean = lambda x, i, v: x.scatter_reduce(0, i, v, "mean")
    check(mean, x, i, v, scatters=2)
    check(
        lambda x, i, v: x.scatter_reduce(0, i, v, "mean", include_self=False), x, i, v, scatters=3
    )


@pytest.mark.parametrize("width", [1, 3, 8, 70, 300])
def test_rows(width):
    x, v, i = torch.randn(9, width), torch.randn(50, width), indices(9, 50)
    check(lambda x, i, v: x.index_add(0, i, v * 2), x, i, v)
    check(lambda x, i, v: x.t().index_add(1, i, v.t()), x, i, v)
    check(lambda v, i: torch.ops.aten.embedding_dense_backward(v, i, 9, 3, False), v, i)


def test_strided_operands():
    x, v, i = torch.randn(7, 9), torch.randn(6, 80), indices(9, 6, 80)
    check(lambda x, i, v: x.t().scatter_add(0, i.t(), v.t().sin()), x, i, v, scatters=1)
    check(lambda x, i, v: x[::2, 1:].scatter_add(1, i[:3, ::2] % 8, v[:3, 1::2]), x, i, v)


def test_what_is_added_may_be_the_same_everywhere():
    one = torch.tensor(1.5)
    check(lambda x, i, v: x.index_put((i,), v, True), torch.randn(7), indices(7, 50), one)
    check(lambda x, i, v: x.index_put((i,), v, True), torch.randn(7, 40), indices(7, 50), one)


def test_places_may_be_the_same_everywhere():
    zeros = lambda x, v: x.index_add(0, torch.zeros(50, dtype=torch.long), v)
    check(zeros, torch.randn(7, 12), torch.randn(50, 12))
    program = lambda x: x.index_put((torch.zeros(300, dtype=torch.long),), torch.ones(300), True)
    check(program, torch.randn(7))


def test_indices_of_several_dimensions():
    x, v = torch.randn(5, 6, 7), torch.randn(40, 6)
    i, j = indices(5, 40), indices(7, 40)
    put = torch.ops.aten.index_put.default
    check(lambda x, i, j, v: put(x, [i, None, j], v, True), x, i, j, v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_kernels_become_machine_code(dtype):
    from frameloom.codegen.triton.chip import H200
    from frameloom.codegen.triton.module import generate
    from frameloom.runtime.build.triton_compiler import build

    x, v = torch.randn(9, 40).to(dtype), torch.randn(50, 40).to(dtype)
    gm = graph_of(lambda x, i, v: x.index_put((i,), v, True), x, indices(9, 50), v)
    program = fuse(lower(gm.graph, gm))
    (kernel,) = (s for s in program.steps if isinstance(s, Kernel) and is_scatter(s))
    checks = frozenset(s.buffer for s in program.steps if isinstance(s, Check))
    sources = generate(launches(kernel, H200), H200, checks)
    assert "tl.atomic_add" in sources[0].text
    assert all(build(sources, 90))


def test_indices_are_checked_on_the_way():
    from frameloom.codegen.triton.module import generate

    x, v, i = torch.randn(7), torch.randn(50), indices(7, 50)
    gm = graph_of(lambda x, i, v: x.scatter_add(0, i, v), x, i, v)
    program = fuse(lower(gm.graph, gm))
    (kernel,) = (s for s in program.steps if isinstance(s, Kernel) and is_scatter(s))
    assert len(kernel.stores) == 2
    (check_,) = (s for s in program.steps if isinstance(s, Check))
    (source,) = generate(launches(kernel, TINY), TINY, frozenset((check_.buffer,)))
    assert "tl.device_assert" in source.text and source.debug
    i[20] = 7
    named = {b.name: t for b, t in zip(program.inputs, (x, i, v), strict=True)}
    named |= {s.buffer.name: zeros_like(s.buffer) for s in kernel.stores}
    for run_kernel in (by_cpp, by_triton):
        mine = {n: t.clone() for n, t in named.items()}
        run_kernel(kernel, mine)
        assert bool(mine[check_.buffer.name])
