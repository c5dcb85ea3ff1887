"""Generated Triton kernels, interpreted on the CPU, against the interpreter of the IR."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom.codegen.schedule.partition import iteration_domain, launches
from frameloom.codegen.triton.chip import H200
from frameloom.codegen.triton.module import generate
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, axis, binary, cast, const, index, load, unary, where
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.substitute import fold, space
from tests.codegen.kernels import out, read, tensor_in, write
from tests.codegen.test_fuzz import Maker
from tests.codegen.triton_kernels import TINY, check

F32, F16 = DType.F32, DType.F16


@pytest.mark.parametrize("seed", [*range(10), 34, 72, 232, 247])
def test_random_kernel(seed):
    # 34, 72, 232, 247: reductions inside reductions over the same outer axes.
    maker = Maker(seed)
    check(maker.stores(), maker.inputs, rtol=1e-4, atol=1e-4)


def rows(n, m, dtype=torch.float32):
    x = torch.randn(n, m).to(dtype)
    i, j = space((n, m))
    return x, tensor_in("x", x), i, j


def softmax(buffer, i, j, offset=0):
    def at(k):
        return cast(F32, read(buffer, i, k, offset=offset))

    r = Axis("k", j.extent)
    most = fold("max", (r,), at(r))
    total = fold("sum", (r,), unary(Op.EXP, binary(Op.SUB, at(r), most)))
    return binary(Op.DIV, unary(Op.EXP, binary(Op.SUB, at(j), most)), total)


@pytest.mark.parametrize("n, m", [(5, 17), (3, 4096), (2, 20001), (300, 40)])
def test_softmax(n, m):
    x, b, i, j = rows(n, m)
    check([write(out("o", (n, m)), (i, j), softmax(b, i, j))], {"x": x}, chip=H200)


@pytest.mark.parametrize("special", [float("-inf"), float("inf"), float("nan")])
@pytest.mark.parametrize("all_of_row", [False, True])
def test_softmax_in_one_pass_of_special_values(special, all_of_row):
    x, b, i, j = rows(2, 17001)
    x[0, slice(None) if all_of_row else slice(5, 7)] = special
    check([write(out("o", (2, 17001)), (i, j), softmax(b, i, j))], {"x": x}, chip=H200)


@pytest.mark.parametrize("m", [4093, 4094, 4095, 4097, 20475])
def test_rows_that_start_anywhere_are_read_whole(m):
    x, b, i, _ = rows(5, m, torch.float16)
    r = Axis("r", m)
    total = fold("sum", (r,), cast(F32, read(b, i, r)))
    check([write(out("o", (5,)), (i,), total)], {"x": x}, rtol=1e-4, atol=1e-3)


def test_rows_that_start_anywhere_are_read_wide():
    x, b, i, _ = rows(5, 20003, torch.float16)
    r = Axis("r", 20003)
    total = fold("sum", (r,), cast(F32, read(b, i, r)))
    (text,) = check([write(out("o", (5,)), (i,), total)], {"x": x}, rtol=1e-4, atol=1e-3)
    assert "// 8 * 8" in text


@pytest.mark.parametrize(
    "kind, shape",
    [
        *(("sum", shape) for shape in ((70000,), (3, 40961), (40961, 3), (257, 263))),
        *((kind, (70000,)) for kind in ("prod", "max", "min")),  # slow where they are interpreted
    ],
)
def test_long_reductions_are_folded_in_chunks(kind, shape):
    x = 1 + torch.randn(shape) / 1e4 if kind == "prod" else torch.randn(shape)
    b = tensor_in("x", x)
    own = tuple(Axis(f"r{k}", e) for k, e in enumerate(shape))
    texts = check(
        [write(out("o", ()), (), fold(kind, own, read(b, *own)))], {"x": x}, rtol=1e-4, atol=1e-2, chip=H200
    )  # fmt: skip
    assert len(texts) == 2


def test_variance_of_few_long_rows_reads_them_once():
    n, m = 2, 40000
    x, b, i, _ = rows(n, m)
    x += 1000
    r = Axis("r", m)
    mean = binary(Op.DIV, fold("sum", (r,), read(b, i, r)), const(m, F32))
    away = binary(Op.SUB, read(b, i, r), mean)
    variance = binary(Op.DIV, fold("sum", (r,), binary(Op.MUL, away, away)), const(m, F32))
    stores = [write(out("v", (n,)), (i,), variance), write(out("m", (n,)), (i,), mean)]
    texts = check(stores, {"x": x}, rtol=1e-4, atol=1e-4, chip=H200)
    assert sum("x\n" in t for t in texts) == 1, "the rows are read by one launch"


@pytest.mark.parametrize("kind", ["argmax", "argmin", "max", "min"])
@pytest.mark.parametrize("m", [7, 20000])
def test_extremes_and_the_position_of_the_first(kind, m):
    x, b, i, _ = rows(4, m)
    x[0, 3:] = 5
    x[1, [2, 5]] = float("nan")
    x[2] = 1
    r = Axis("r", m)
    o = out("o", (4,), DType.I64 if kind.startswith("arg") else F32)
    check([write(o, (i,), fold(kind, (r,), read(b, i, r)))], {"x": x}, chip=H200)


@pytest.mark.parametrize("kind", ["any", "all"])
def test_logic(kind):
    x = torch.tensor([[True, True], [True, False], [False, False]])
    b = tensor_in("x", x)
    i, r = Axis("i", 3), Axis("r", 2)
    check([write(out("o", (3,), DType.BOOL), (i,), fold(kind, (r,), read(b, i, r)))], {"x": x})


def test_transposed_operand_is_read_in_squares():
    n, m = 70, 90
    a, b = torch.randn(m, n), torch.randn(n, m)
    i, j = space((n, m))
    value = binary(Op.ADD, read(tensor_in("a", a), j, i), read(tensor_in("b", b), i, j))
    (text,) = check([write(out("o", (n, m)), (i, j), value)], {"a": a, "b": b})
    assert "[:, None]" in text


def test_transposed_copies_of_several_tensors_in_one_launch():
    inputs = {name: torch.randn(65, 70) for name in "abc"}
    i, j = space((70, 65))
    stores = [
        write(out(f"o{name}", (70, 65)), (i, j), read(tensor_in(name, x), j, i))
        for name, x in inputs.items()
    ]
    check(stores, inputs)
    assert len(launches(Kernel("k", tuple(stores), ()), TINY)) == 1


@pytest.mark.parametrize("n, m", [(301, 64), (200, 60), (90, 1000)])
@pytest.mark.parametrize("per_row", [False, True])
def test_what_rows_or_columns_share_is_computed_once_for_a_tile(n, m, per_row):
    x, b, i, j = rows(n, m)
    scale = torch.rand(n if per_row else m) + 0.5
    given = read(tensor_in("s", scale), i if per_row else j)
    shared = binary(Op.DIV, const(1.0, F32), unary(Op.SQRT, given))
    value = binary(Op.MUL, read(b, i, j), shared)
    stores = [write(out("o", (n, m)), (i, j), value)]
    check(stores, {"x": x, "s": scale})
    (source,) = generate(launches(Kernel("k", tuple(stores), ()), TINY), TINY)
    assert "[None, :]" in source.text and "[:, None]" in source.text


def test_casts_round_where_they_stand():
    # Not bf16, which Triton's interpreter does not round to nearest.
    x = torch.randn(100, dtype=torch.float16)
    b = tensor_in("x", x)
    (i,) = space((100,))
    product = cast(F16, binary(Op.MUL, cast(F32, read(b, i)), const(1.1, F32)))
    value = cast(F16, binary(Op.ADD, cast(F32, product), const(0.3, F32)))
    check([write(out("o", (100,), F16), (i,), value)], {"x": x}, rtol=0, atol=0)


INTS = [DType.I8, DType.U8, DType.I16, DType.I32, DType.I64]


@pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.text)
@pytest.mark.parametrize("op", [Op.FLOORDIV, Op.TRUNCDIV, Op.MOD, Op.FMOD, Op.ADD, Op.MUL, Op.MAX])
def test_integers(op, dtype):
    low = 0 if dtype.kind == "u" else -100
    x = torch.randint(low, 100, (64,)).to(dtype.to_torch())
    y = torch.randint(1, 9, (64,)).to(dtype.to_torch())
    if dtype.kind != "u":
        y[::3] *= -1
    (i,) = space((64,))
    value = binary(op, read(tensor_in("x", x), i), read(tensor_in("y", y), i))
    check([write(out("o", (64,), dtype), (i,), value)], {"x": x, "y": y})


def test_offsets_beyond_32_bits_are_computed_in_64():
    far = Buffer("x", F32, (1 << 20, 1 << 12), (1 << 12, 1), Kind.INPUT)
    i, j = space((1 << 20, 1 << 12))
    kernel = Kernel("far", (write(out("o", (1 << 20, 1 << 12)), (i, j), read(far, i, j)),))
    (source,) = generate(launches(kernel, H200), H200)
    assert "int64" in source.text


def test_masked_gather():
    table, at = torch.randn(10, 6), torch.tensor([1, 11, -3, 9])
    i, j = space((4, 6))
    row = read(tensor_in("at", at), i)
    inside = binary(Op.AND, binary(Op.GE, row, index(0)), binary(Op.LT, row, index(10)))
    offset = binary(Op.ADD, binary(Op.MUL, row, index(6)), axis(j))
    value = load(tensor_in("table", table), offset, inside)
    check([write(out("o", (4, 6)), (i, j), value)], {"table": table, "at": at})


def test_an_index_out_of_range_stops_the_kernel():
    at = torch.tensor([1, 11])
    r = Axis("r", 2)
    bad = fold("any", (r,), binary(Op.GE, read(tensor_in("at", at), r), index(10)))
    flag = out("flag", (), DType.BOOL)
    kernel = Kernel("checked", (write(flag, (), bad),))
    (source,) = generate(launches(kernel, H200), H200, frozenset({flag}))
    assert source.debug and "device_assert" in source.text


def test_every_launch_has_the_form():
    maker = Maker(3)
    for kernel in launches(Kernel("k", tuple(maker.stores())), TINY):
        forms = {iteration_domain(s).extents for s in kernel.stores}
        assert None not in forms


def test_values_that_are_not_used_inside_a_condition():
    x = torch.tensor([0.0, 1.0, -1.0, float("nan")])
    (i,) = space((4,))
    value = read(tensor_in("x", x), i)
    chosen = where(binary(Op.GT, value, const(0, F32)), const(1, F32), const(0.5, F32))
    check([write(out("o", (4,)), (i,), chosen)], {"x": x})


def test_equal_kernels_share_a_source():
    x, b, i, j = rows(5, 17)
    y = Buffer("y", F32, b.shape, b.strides, Kind.INPUT)
    kernels = [
        Kernel("one", (write(out("o", (5, 17)), (i, j), softmax(b, i, j)),)),
        Kernel("two", (write(out("p", (5, 17)), (i, j), softmax(y, i, j)),)),
    ]
    (source,) = generate([k for kernel in kernels for k in launches(kernel, H200)], H200)
    assert [e.name for e in source.entries] == ["one", "two"]
    assert [b.name for b in source.entries[1].buffers] == ["y", "p"]


def product(a, b, i, j):
    k = Axis("k", 100)
    return fold("sum", (k,), binary(Op.MUL, read(a, i, k), read(b, k, j)))


def test_a_product_that_several_use_is_computed_once():
    x, y = torch.randn(100, 100), torch.randn(100, 100)
    i, j = space((100, 100))
    r = Axis("r", 100)
    a, b = tensor_in("x", x), tensor_in("y", y)
    most = fold("max", (r,), product(a, b, i, r))
    value = binary(Op.SUB, product(a, b, i, j), most)
    texts = check(
        [write(out("o", (100, 100)), (i, j), value)], {"x": x, "y": y}, rtol=1e-4, atol=1e-4
    )
    assert len(texts) == 2


def test_losses_of_rows_are_summed_behind_one_pass_over_them():
    x, b, _, _ = rows(5, 20001)
    i, j = Axis("r0", 5), Axis("r1", 20001)

    def at(k):
        return read(b, i, k)

    most = fold("max", (j,), at(j))
    total = fold("sum", (j,), unary(Op.EXP, binary(Op.SUB, at(j), most)))
    loss = fold("sum", (i,), binary(Op.ADD, most, unary(Op.LOG, total)))
    texts = check([write(out("o", ()), (), loss)], {"x": x}, rtol=1e-4, atol=1e-4)
    assert len(texts) == 2


def test_statistics_of_channels_take_one_pass_and_their_use_another():
    x = torch.randn(4, 3, 9000) + 10
    b = tensor_in("x", x)
    n, c, p = space((4, 3, 9000))
    own = (Axis("n", 4), Axis("p", 9000))

    def moments(channel):
        mean = binary(Op.DIV, fold("sum", own, read(b, own[0], channel, own[1])), const(36000, F32))
        away = binary(Op.SUB, read(b, own[0], channel, own[1]), mean)
        return mean, binary(Op.DIV, fold("sum", own, binary(Op.MUL, away, away)), const(36000, F32))

    mean, variance = moments(c)
    (k,) = space((3,))
    normal = binary(Op.DIV, binary(Op.SUB, read(b, n, c, p), mean), variance)
    stores = [write(out("o", (4, 3, 9000)), (n, c, p), normal)]
    stores += [write(out(f"m{i}", (3,)), (k,), m) for i, m in enumerate(moments(k))]
    texts = check(stores, {"x": x}, rtol=1e-4, atol=1e-4, chip=H200)
    assert sum(": x\n" in t for t in texts) == 2
