"""Rows, columns, whole tensors and reductions of reductions against the interpreter."""

import itertools

import pytest
import torch

from frameloom.ir.dtype import DType
from frameloom.ir.index import floordiv, mod
from frameloom.ir.node import Axis, axis, binary, cast, const, index, load, unary, where
from frameloom.ir.ops import Op
from tests.codegen.kernels import check, fold, linear, out, read, space, tensor_in, write


def softmax(x, o, dim=1):
    i, j = space(o.shape)
    r = Axis("r", o.shape[dim])
    inner = read(x, i, r) if dim == 1 else read(x, r, j)
    top = fold("max", (r,), inner)
    total = fold("sum", (r,), unary(Op.EXP, binary(Op.SUB, inner, top)))
    return write(
        o, (i, j), binary(Op.DIV, unary(Op.EXP, binary(Op.SUB, read(x, i, j), top)), total)
    )


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (33, 17), (64, 128), (2, 20000), (300, 1000)])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax(shape, dim):
    x = torch.randn(shape)
    check([softmax(tensor_in("x", x), out("o", shape), dim)], {"x": x})


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod", "argmax", "argmin"])
@pytest.mark.parametrize(
    "shape", [(3, 5), (7, 1), (1, 70), (65, 129), (2, 3001), (3001, 2), (603, 2101)]
)
def test_rows_and_columns(kind, shape):
    x = torch.randn(shape)
    if kind == "prod":
        x = 1 + 0.01 * x
    b = tensor_in("x", x)
    n, m = shape
    (i,), (j,) = space((n,)), space((m,))
    r, c = Axis("r", m), Axis("c", n)
    dtype = DType.I64 if kind.startswith("arg") else DType.F32
    check(
        [write(out("o", (n,), dtype), (i,), fold(kind, (r,), read(b, i, r)))],
        {"x": x},
        rtol=1e-5,
        atol=1e-4,
    )
    check(
        [write(out("o", (m,), dtype), (j,), fold(kind, (c,), read(b, c, j)))],
        {"x": x},
        rtol=1e-5,
        atol=1e-4,
    )


@pytest.mark.parametrize("kind", ["sum", "max", "argmax", "argmin"])
@pytest.mark.parametrize("count", [1, 15, 1000, 300_001])
def test_whole_tensor(kind, count):
    x = torch.randn(count)
    dtype = DType.I64 if kind.startswith("arg") else DType.F32
    r = Axis("r", count)
    check(
        [write(out("o", (), dtype), (), fold(kind, (r,), read(tensor_in("x", x), r)))],
        {"x": x},
        atol=1e-3,
    )


def test_nan_and_ties():
    for values in (
        [1.0, float("nan"), 3.0, float("nan")],
        [float("-inf")] * 5,
        [2.0, 5.0, 5.0, 1.0],
        [float("inf")] * 3,
    ):
        x = torch.tensor(values).repeat(20)
        b, r = tensor_in("x", x), Axis("r", len(x))
        for kind in ("max", "min", "argmax", "argmin"):
            dtype = DType.I64 if kind.startswith("arg") else DType.F32
            check([write(out("o", (), dtype), (), fold(kind, (r,), read(b, r)))], {"x": x})


def test_integers_and_bools():
    x = torch.randint(-100, 100, (33, 77))
    b, (i,), r = tensor_in("x", x), space((33,)), Axis("r", 77)
    for kind in ("sum", "max", "min", "argmax"):
        check([write(out("o", (33,), DType.I64), (i,), fold(kind, (r,), read(b, i, r)))], {"x": x})
    y = torch.rand(33, 77) > 0.98
    b = tensor_in("y", y)
    few = read(b, i, r)
    for kind in ("any", "all", "max", "min"):
        for value in (few, unary(Op.NOT, few)):
            check([write(out("o", (33,), DType.BOOL), (i,), fold(kind, (r,), value))], {"y": y})


def test_positions_count_along_an_axis_that_is_cut():
    """The greatest element of a transposed matrix, read as one row."""
    x = torch.randn(40, 24)
    b, r = tensor_in("x", x), Axis("r", 960)
    across, down = mod(axis(r), 40), floordiv(axis(r), 40)
    for kind in ("argmax", "argmin"):
        position = fold(kind, (r,), read(b, across, down))
        check([write(out("o", (), DType.I64), (), position)], {"x": x})


def layer_norm(x, w, bias, o, rows, columns):
    i, j = space((rows, columns))
    r = Axis("r", columns)
    count = const(columns, DType.F32)
    mean = binary(Op.DIV, fold("sum", (r,), read(x, i, r)), count)
    centred = binary(Op.SUB, read(x, i, r), mean)
    variance = binary(Op.DIV, fold("sum", (r,), binary(Op.MUL, centred, centred)), count)
    scale = unary(Op.RSQRT, binary(Op.ADD, variance, const(1e-5, DType.F32)))
    value = binary(Op.MUL, binary(Op.SUB, read(x, i, j), mean), scale)
    value = binary(Op.ADD, binary(Op.MUL, value, read(w, j)), read(bias, j))
    return write(o, (i, j), value)


@pytest.mark.parametrize("shape", [(3, 5), (40, 1000), (2, 100_000)])
def test_layer_norm(shape):
    x, w, b = torch.randn(shape) * 3 + 1, torch.randn(shape[1]), torch.randn(shape[1])
    given = {"x": x, "w": w, "b": b}
    buffers = [tensor_in(n, t) for n, t in given.items()]
    check([layer_norm(*buffers, out("o", shape), *shape)], given, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 5), (128, 800), (1000, 10)])
def test_cross_entropy(shape):
    n, m = shape
    x, t = torch.randn(shape), torch.randint(0, m, (n,))
    bx, bt = tensor_in("x", x), tensor_in("t", t)
    row, r = Axis("row", n), Axis("r", m)
    top = fold("max", (r,), read(bx, row, r))
    total = fold("sum", (r,), unary(Op.EXP, binary(Op.SUB, read(bx, row, r), top)))
    picked = load(bx, linear([axis(row), read(bt, row)], bx.strides))
    loss = binary(Op.SUB, binary(Op.ADD, unary(Op.LOG, total), top), picked)
    mean = binary(Op.DIV, fold("sum", (row,), loss), const(n, DType.F32))
    check([write(out("o", ()), (), mean)], {"x": x, "t": t}, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (4, 8, 16, 16), (2, 16, 56, 56)])
def test_batch_norm(shape):
    x = torch.randn(shape)
    b = tensor_in("x", x)
    n, c, h, w = space(shape)
    rn, rh, rw = Axis("rn", shape[0]), Axis("rh", shape[2]), Axis("rw", shape[3])
    count = const(x.numel() // shape[1], DType.F32)
    inner = read(b, rn, c, rh, rw)
    mean = binary(Op.DIV, fold("sum", (rn, rh, rw), inner), count)
    centred = binary(Op.SUB, inner, mean)
    variance = binary(Op.DIV, fold("sum", (rn, rh, rw), binary(Op.MUL, centred, centred)), count)
    scale = unary(Op.RSQRT, binary(Op.ADD, variance, const(1e-5, DType.F32)))
    value = binary(Op.MUL, binary(Op.SUB, read(b, n, c, h, w), mean), scale)
    value = binary(Op.MAX, value, const(0, DType.F32))
    stats = out("m", (shape[1],))
    (c1,) = space((shape[1],))
    from frameloom.ir.substitute import substitute

    check(
        [
            write(out("o", shape), (n, c, h, w), value),
            write(stats, (c1,), substitute(mean, {c: axis(c1)})),
        ],
        {"x": x},
        rtol=1e-5,
        atol=1e-5,
    )


def test_half_precision_rows():
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.randn(37, 100).to(dtype)
        b, (i,), r = tensor_in("x", x), space((37,)), Axis("r", 100)
        value = cast(b.dtype, fold("sum", (r,), cast(DType.F32, read(b, i, r))))
        check([write(out("o", (37,), b.dtype), (i,), value)], {"x": x}, rtol=1e-2)


def test_channel_positions():
    # A group's channels are one axis in the store and two in the reduction.
    x = torch.randn(2, 8, 30)
    b = tensor_in("x", x)
    n, c, s = space((2, 8, 30))
    k, r = Axis("k", 4), Axis("r", 30)
    from frameloom.ir.index import add, floordiv, mul

    group = add(mul(floordiv(axis(c), 4), index(4)), axis(k))
    total = fold("sum", (k, r), read(b, n, group, r))
    check(
        [write(out("o", (2, 8, 30)), (n, c, s), binary(Op.SUB, read(b, n, c, s), total))],
        {"x": x},
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("shape", [(5, 7), (70, 90)])
def test_rows_and_columns_together(shape):
    x = torch.randn(shape)
    b, (i, j) = tensor_in("x", x), space(shape)
    r, c = Axis("r", shape[1]), Axis("c", shape[0])
    rows = fold("sum", (r,), read(b, i, r))
    columns = fold("max", (c,), read(b, c, j))
    total = binary(Op.ADD, binary(Op.ADD, read(b, i, j), rows), columns)
    source = check([write(out("o", shape), (i, j), total)], {"x": x}, rtol=1e-5, atol=1e-5)
    assert "malloc" in source
    # Softmax of a softmax along the other dimension.
    top = lambda value, kind: fold(kind, (c,), value)
    inner = binary(Op.MUL, read(b, c, j), fold("sum", (r,), read(b, c, r)))
    value = binary(Op.SUB, binary(Op.MUL, read(b, i, j), rows), top(inner, "max"))
    check([write(out("o", shape), (i, j), value)], {"x": x}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 60, 700), (70, 3, 513)])
def test_neighbours_are_reduced_by_strips(shape):
    """Variances and flags of columns, over two axes: the second pass needs the first one's results."""
    x = torch.randn(shape)
    b = tensor_in("x", x)
    (j,), i, k = space(shape[2:]), Axis("i", shape[0]), Axis("k", shape[1])
    count = const(shape[0] * shape[1], DType.F32)
    mean = binary(Op.DIV, fold("sum", (i, k), read(b, i, k, j)), count)
    centred = binary(Op.SUB, read(b, i, k, j), mean)
    squares = fold("sum", (i, k), binary(Op.MUL, centred, centred))
    over = fold("any", (i, k), binary(Op.GT, read(b, i, k, j), const(3.0, DType.F32)))
    source = check(
        [
            write(out("v", shape[2:]), (j,), squares),
            write(out("f", shape[2:], DType.BOOL), (j,), over),
        ],
        {"x": x},
        rtol=1e-5,
        atol=1e-4,
    )
    assert "strip" in source


@pytest.mark.parametrize("depths", itertools.product(range(4), repeat=3))
@pytest.mark.parametrize("rows", [False, True])
def test_stores_that_wait_for_reductions_of_reductions(depths, rows):
    """Stores over the same elements, each of which needs so many reductions one behind the other; of rows, or of all."""
    n, m, k = 3, 5, 7
    x, y = torch.randn(n, m), torch.randn(n, k)
    i, j = space((n, m))

    def less_reduced(at, depth, source):
        if depth == 0:
            return read(source, *at)
        over = (Axis(f"r{depth}_0", n), Axis(f"r{depth}_1", k))
        inner = (at[0], axis(over[1])) if rows else tuple(map(axis, over))
        top = fold("max", over[1:] if rows else over, less_reduced(inner, depth - 1, b))
        return binary(Op.SUB, read(source, *at), top)

    a, b = tensor_in("x", x), tensor_in("y", y)
    stores = [
        write(out(f"o{at}", (n, m)), (i, j), less_reduced((i, j), depth, a))
        for at, depth in enumerate(depths)
    ]
    check(stores, {"x": x, "y": y})


@pytest.mark.parametrize("kind", ["min", "sum"])
def test_reduction_that_loops_inside_a_lane_loop_add_to(kind):
    n, k = 17, 7
    x, y = torch.randn(n, 2), torch.randn(n, k, n)
    a, b = tensor_in("x", x), tensor_in("y", y)
    r0, r1, r2 = (Axis(f"r{d}", n) for d in range(3))
    p, q = Axis("p", 2), Axis("q", k)
    first = cast(DType.F32, fold("argmax", (p,), read(a, r2, p)))
    second = fold("sum", (q,), read(b, r2, q, r0))
    inner = where(binary(Op.GT, axis(r1), index(7)), first, second)
    (i,) = space((n,))
    check(
        [write(out("o", (n,)), (i,), fold(kind, (r0, r1, r2), inner))],
        {"x": x, "y": y},
        rtol=1e-4,
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.int8, torch.bfloat16])
@pytest.mark.parametrize("count", range(1, 18))
def test_few_elements_of_another_width(dtype, count):
    """They are added one by one where they are lanes of one vector."""
    x = torch.arange(1, count + 1).to(dtype)
    b = tensor_in("x", x)
    (i,), r = space((3,)), Axis("r", count)
    check(
        [
            write(out(f"o_{kind}", (3,)), (i,), fold(kind, (r,), cast(DType.F32, read(b, r))))
            for kind in ("sum", "prod")
        ],
        {"x": x},
    )
