"""Lists of kernels of one form: found, ordered, and their one kernel interpreted on the CPU against the kernels."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom.codegen.chip import H200
from frameloom.codegen.list_text import generate_lists
from frameloom.codegen.lists import lists
from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.node import binary, cast, const
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, KernelList, Kind, Program, Store
from frameloom.ir.substitute import space
from frameloom.ir.verify import verify
from tests.codegen.kernels import read
from tests.codegen.triton_kernels import load

F32 = DType.F32


def on_gpu(name, tensor):
    """The buffer of a tensor, as if that were on a GPU."""
    dtype = DType.of(tensor.dtype)
    return Buffer(name, dtype, tuple(tensor.shape), tensor.stride(), Kind.INPUT, device="cuda:0")


def program_of(steps, buffers):
    return Program(tuple(buffers), tuple(steps), tuple(range(len(buffers))))


def update(k, p, g, factor=0.5):
    """p += g * factor"""
    axes = space(p.shape)
    into = read(p, *axes)
    value = binary(
        Op.ADD, cast(F32, into), binary(Op.MUL, cast(F32, read(g, *axes)), const(factor, F32))
    )
    return Kernel(f"update_{k}", (Store(p, into.srcs[0], cast(p.dtype, value), axes),))


def run_list(one, tensors):
    """The list's kernel, interpreted."""
    (source,) = generate_lists([one], H200)
    (entry,) = source.entries
    table = [
        [tensors[b.name].data_ptr() + start * b.dtype.bytes for b, start in row]
        for row in entry.columns
    ]
    blocks = [
        (k, at) for k, words in enumerate(entry.words) for at in range(-(-words[0] // entry.block))
    ]
    assert source.grid == (len(blocks), 1, 1)
    load(source)[source.grid](
        torch.tensor(table), torch.tensor(entry.words), torch.tensor(blocks, dtype=torch.int32)
    )
    return source


def check_list(make, shapes, dtype=torch.float32, count=1):
    """`make(k, p, g)` for tensors of these shapes becomes `count` lists that do what the kernels do."""
    ps = {f"p{k}": torch.randn(s).to(dtype) for k, s in enumerate(shapes)}
    gs = {f"g{k}": torch.randn(s).to(dtype) for k, s in enumerate(shapes)}
    tensors = ps | gs
    buffers = {n: on_gpu(n, t) for n, t in tensors.items()}
    kernels = [make(k, buffers[f"p{k}"], buffers[f"g{k}"]) for k in range(len(shapes))]
    before = program_of(kernels, buffers.values())
    after = lists(before)
    verify(after)
    found = [s for s in after.steps if isinstance(s, KernelList)]
    assert len(found) == count == len(after.steps)
    expected = {n: t.clone() for n, t in tensors.items()}
    interp.run(before, list(expected.values()))
    sources = [run_list(one, tensors) for one in found]
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]), name
    return sources


SHAPES = [(3,), (5, 7), (2048,), (), (1,), (2, 3000), (4, 1, 512), (5001,)]


def test_tensors_of_any_size():
    check_list(update, SHAPES)


def test_half_precision_rounds_where_the_kernels_do():
    check_list(update, SHAPES, torch.float16)


def test_numbers_that_differ_are_looked_up():
    (source,) = check_list(lambda k, p, g: update(k, p, g, 0.1 * k - 0.3), SHAPES)
    assert "c0" in source.text


def test_one_text_serves_all_sizes_and_lengths():
    (one,) = check_list(update, SHAPES)
    (other,) = check_list(update, [(9,)] * 5)
    assert one.text == other.text
