"""Lists of kernels of one form: found, ordered, and their one kernel interpreted on the CPU against the kernels."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom.codegen.schedule.horizontal import lists
from frameloom.codegen.triton.chip import H200
from frameloom.codegen.triton.list_text import generate_lists
from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.kernel_list import KernelList
from frameloom.ir.node import binary, cast, const
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Store
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


def word(tensor, buffer, start):
    """What the plan writes into the table: an address, or a number's bits."""
    if buffer.kind is Kind.NUMBER:
        return int(tensor.view(torch.int64))
    return tensor.data_ptr() + start * buffer.dtype.bytes


def run_list(one, tensors):
    """The list's kernel, interpreted."""
    (source,) = generate_lists([one], H200)
    (entry,) = source.entries
    table = [[word(tensors[b.name], b, start) for b, start in row] for row in entry.columns]
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


def test_everything_is_read_before_anything_is_computed():
    """Loads are not moved over the branches of a division."""

    def quotient(k, p, g):
        axes = space(p.shape)
        into, by = read(p, *axes), read(g, *axes)
        half = binary(Op.DIV, const(0.5, F32), binary(Op.MUL, by, by))
        return Kernel(f"div_{k}", (Store(p, into.srcs[0], binary(Op.MUL, half, into), axes),))

    (source,) = check_list(quotient, SHAPES)
    lines = [line.strip() for line in source.text.splitlines()]
    reads = [k for k, line in enumerate(lines) if "tl.load(p" in line]
    assert len(reads) == 4
    assert not any("div" in line for k in (0, 2) for line in lines[reads[k] : reads[k + 1]])


def test_one_text_serves_all_sizes_and_lengths():
    (one,) = check_list(update, SHAPES)
    (other,) = check_list(update, [(9,)] * 5)
    assert one.text == other.text


def two_updates(k, m, g):
    """m = m * 0.9 + g and g = g - m, from what was there before."""
    axes = space(m.shape)
    old, given = read(m, *axes), read(g, *axes)
    new = binary(Op.ADD, binary(Op.MUL, old, const(0.9, F32)), given)
    stores = (
        Store(m, old.srcs[0], new, axes),
        Store(g, given.srcs[0], binary(Op.SUB, given, old), axes),
    )
    return Kernel(f"two_{k}", stores)


def test_what_several_read_and_one_overwrites():
    check_list(two_updates, SHAPES)


def test_kernels_that_need_each_other_are_not_one():
    t = {n: torch.randn(9) for n in ("a", *(f"b{k}" for k in range(8)))}
    b = {n: on_gpu(n, x) for n, x in t.items()}
    first = [update(k, b[f"b{k}"], b["a"]) for k in range(4)]
    second = [update(k + 4, b[f"b{k + 4}"], b[f"b{k}"]) for k in range(4)]
    third = update(8, b["a"], b["b7"])
    program = program_of([*first, *second, third], b.values())
    after = lists(program)
    verify(after)
    names = [len(s.instances) if isinstance(s, KernelList) else s.name for s in after.steps]  # fmt: skip
    assert names == [4, 4, "update_8"]


def test_kernels_behind_a_chain_wait_for_the_last():
    t = {f"b{k}": torch.randn(9) for k in range(8)}
    b = {n: on_gpu(n, x) for n, x in t.items()}

    def other(k):
        (i,) = space((9,))
        value = binary(Op.MUL, read(b[f"b{k}"], i), const(3.0, F32))
        return Kernel(f"other_{k}", (Store(b[f"b{k}"], read(b[f"b{k}"], i).srcs[0], value, (i,)),))

    steps = [k for n in range(4) for k in (update(n, b[f"b{n}"], b[f"b{n + 4}"]), other(n))]
    after = lists(program_of(steps, b.values()))
    verify(after)
    assert [len(s.instances) for s in after.steps] == [4, 4]


def test_tensors_of_other_layouts():
    x = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    ps = [on_gpu(f"p{k}", x) for k in range(4)]
    gs = [on_gpu(f"g{k}", x) for k in range(4)]
    (one,) = lists(program_of(map(update, range(4), ps, gs), [*ps, *gs])).steps
    assert [r.extent for r in one.instances] == [300] * 4
    mixed = [on_gpu(f"g{k}", x.contiguous()) for k in range(4)]
    after = lists(program_of(map(update, range(4), ps, mixed), [*ps, *mixed]))
    assert len(after.steps) == 4, "not the same order in memory"


def test_wide_accesses_in_machine_code():
    from frameloom.runtime.build.triton_compiler import build

    tensors = [on_gpu(f"t{k}", torch.empty(1 << 20)) for k in range(8)]
    kernels = [update(k, tensors[k], tensors[k + 4]) for k in range(4)]
    (one,) = lists(program_of(kernels, tensors)).steps
    (cubin,) = build(generate_lists([one], H200), 90)
    assert cubin.data[:4] == b"\x7fELF"


def test_blocks_have_one_wide_access_a_thread():
    few = [on_gpu(f"t{k}", torch.empty(100)) for k in range(8)]
    many = [on_gpu(f"t{k}", torch.empty(1 << 20, dtype=torch.bfloat16)) for k in range(8)]
    found = []
    for tensors in (few, many):
        kernels = [update(k, tensors[k], tensors[k + 4]) for k in range(4)]
        (one,) = lists(program_of(kernels, tensors)).steps
        (source,) = generate_lists([one], H200)
        found.append((source.entries[0].block, source.warps))
    assert found == [(512, 4), (2048, 8)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_numbers_known_only_at_run_time_differ_by_row(dtype):
    shapes = [(5,), (3000,), (8, 16), (17,)]
    ps = {f"p{k}": torch.randn(s).to(dtype) for k, s in enumerate(shapes)}
    gs = {f"g{k}": torch.randn(s).to(dtype) for k, s in enumerate(shapes)}
    numbers = {f"n{k}": torch.tensor(0.1 * (k + 1), dtype=torch.float64) for k in range(4)}
    tensors = ps | gs | numbers
    buffers = {n: on_gpu(n, t) for n, t in (ps | gs).items()}
    steps = []
    for k in range(4):
        n = buffers[f"n{k}"] = Buffer(f"n{k}", DType.F64, (), (), Kind.NUMBER)
        p, g = buffers[f"p{k}"], buffers[f"g{k}"]
        axes = space(p.shape)
        into, factor = read(p, *axes), cast(F32, read(n))
        moved = binary(Op.MUL, cast(F32, read(g, *axes)), factor)
        value = cast(p.dtype, binary(Op.ADD, cast(F32, into), moved))
        steps.append(Kernel(f"update_{k}", (Store(p, into.srcs[0], value, axes),)))
    before = program_of(steps, buffers.values())
    after = lists(before)
    verify(after)
    (one,) = after.steps
    expected = {n: t.clone() for n, t in tensors.items()}
    interp.run(before, [t.item() if n in numbers else t for n, t in expected.items()])
    run_list(one, tensors)
    for name in ps:
        assert torch.equal(tensors[name], expected[name]), name
