"""Pointwise kernels: dtypes, layouts, broadcasting, masks, gathers, several stores, in place."""

import itertools

import pytest
import torch

from frameloom.ir.dtype import DType
from frameloom.ir.index import add, linear
from frameloom.ir.node import axis, binary, cast, const, index, load, unary, where
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind, Store
from tests.codegen.kernels import check, out, read, space, tensor_in, write

DTYPES = [
    DType.BOOL,
    DType.U8,
    DType.I8,
    DType.I16,
    DType.I32,
    DType.I64,
    DType.F16,
    DType.BF16,
    DType.F32,
    DType.F64,
]


def sample(dtype: DType, shape) -> torch.Tensor:
    if dtype is DType.BOOL:
        return torch.rand(shape) > 0.5
    if dtype.is_float:
        return (torch.randn(shape) * 10).to(dtype.to_torch())
    return torch.randint(0 if dtype is DType.U8 else -100, 100, shape).to(dtype.to_torch())


@pytest.mark.parametrize("source", DTYPES, ids=repr)
def test_casts(source):
    # All targets in one kernel, once as rows with a tail and once alone.
    for count in (1, 71):
        x = sample(source, (count,))
        (i,) = space((count,))
        value = read(tensor_in("x", x), i)
        targets = [
            d for d in DTYPES if not (source.is_float and d is DType.U8)
        ]  # negative to unsigned: undefined
        check(
            [write(out(f"o_{d.text}", (count,), d), (i,), cast(d, value)) for d in targets],
            {"x": x},
        )


@pytest.mark.parametrize(
    "pair", itertools.product(DTYPES, DTYPES), ids=lambda p: f"{p[0]!r}-{p[1]!r}"
)
def test_one_cast(pair):
    source, target = pair
    if source.is_float and target is DType.U8:
        pytest.skip("negative to unsigned is undefined")
    x = sample(source, (300,))
    (i,) = space((300,))
    check(
        [write(out("o", (300,), target), (i,), cast(target, read(tensor_in("x", x), i)))], {"x": x}
    )


def test_half_rounding_is_eager():
    # All 16-bit patterns, and numbers between two of them.
    for dtype in (torch.bfloat16, torch.float16):
        h = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
        (i,) = space(h.shape)
        b = tensor_in("x", h)
        check(
            [write(out("o", h.shape, DType.F32), (i,), cast(DType.F32, read(b, i)))],
            {"x": h},
            rtol=0,
            atol=0,
        )
        f = torch.cat([h.float()[:-1].lerp(h.float()[1:], t) for t in (0.25, 0.5, 0.5001)])
        f = torch.cat(
            [
                f,
                torch.tensor(
                    [1e38, 65504.0, 65519.9, 65520.0, -65520.0, 1e-8, 6e-8, 3e-8, float("nan")]
                ),
            ]
        )
        (i,) = space(f.shape)
        b = tensor_in("x", f)
        check(
            [write(out("o", f.shape, DType.of(dtype)), (i,), cast(DType.of(dtype), read(b, i)))],
            {"x": f},
            rtol=0,
            atol=0,
        )


UNARY = [
    Op.NEG,
    Op.ABS,
    Op.SIGN,
    Op.RECIP,
    Op.SQRT,
    Op.RSQRT,
    Op.FLOOR,
    Op.CEIL,
    Op.TRUNC,
    Op.ROUND,
    Op.ISNAN,
    Op.ISINF,
    Op.SIGNBIT,
]
SPECIAL = [
    float("nan"),
    float("inf"),
    float("-inf"),
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    1e30,
    -1e30,
    8388609.0,
    1e-42,
]


@pytest.mark.parametrize("op", UNARY, ids=lambda o: o.value)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unary_floats(op, dtype):
    x = torch.cat([torch.tensor(SPECIAL, dtype=dtype), torch.randn(20, dtype=dtype) * 3])
    (i,) = space(x.shape)
    value = unary(op, read(tensor_in("x", x), i))
    check([write(out("o", x.shape, value.dtype), (i,), value)], {"x": x})
    # The same on one element, as scalar code.
    y = x[8:9].clone()
    value = unary(op, read(tensor_in("x", y), index(0)))
    check([write(out("o", (), value.dtype), (), value)], {"x": y})


ARITHMETIC = [Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX, Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE]
INTEGER = [Op.FLOORDIV, Op.TRUNCDIV, Op.MOD, Op.FMOD, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR]


@pytest.mark.parametrize(
    "dtype", [d for d in DTYPES if not d.is_half and d is not DType.BOOL], ids=repr
)
def test_binary(dtype):
    x, y = sample(dtype, (83,)), sample(dtype, (83,))
    y[y == 0] = 3
    if dtype.is_float:
        x[:14] = torch.tensor(SPECIAL, dtype=x.dtype)
        y[10:14] = x[10:14]
        y[14] = float("nan")
    ops = [*ARITHMETIC, *([Op.DIV] if dtype.is_float else INTEGER)]
    for count in (83, 1):
        xs, ys = x[:count].clone(), y[:count].clone()
        if not dtype.is_float:
            ys = ys.clone()
        (i,) = space((count,))
        a, b = read(tensor_in("x", xs), i), read(tensor_in("y", ys), i)
        shift = binary(Op.AND, b, const(5, dtype)) if dtype.is_int else b
        stores = []
        for op in ops:
            value = binary(op, a, shift if op in (Op.SHL, Op.SHR) else b)
            stores.append(write(out(f"o_{op.value}", (count,), value.dtype), (i,), value))
        check(stores, {"x": xs, "y": ys})


def test_bool_operations():
    x, y = sample(DType.BOOL, (77,)), sample(DType.BOOL, (77,))
    (i,) = space((77,))
    a, b = read(tensor_in("x", x), i), read(tensor_in("y", y), i)
    values = [binary(op, a, b) for op in (Op.AND, Op.OR, Op.XOR, Op.EQ, Op.NE, Op.MAX, Op.MIN)]
    values += [
        unary(Op.NOT, a),
        where(a, b, unary(Op.NOT, b)),
        where(a, const(True, DType.BOOL), b),
    ]
    check(
        [write(out(f"o{k}", (77,), DType.BOOL), (i,), v) for k, v in enumerate(values)],
        {"x": x, "y": y},
    )
    for count in (1, 77):
        xs = x[:count].clone()
        (i,) = space((count,))
        v = where(read(tensor_in("x", xs), i), const(2.5, DType.F64), const(-1, DType.F64))
        check([write(out("o", (count,), DType.F64), (i,), v)], {"x": xs})


def test_a_flag_compared_with_flags():
    x, y = torch.tensor([True, False, True]), sample(DType.BOOL, (77,))
    i, j = space((3, 77))
    a, b = read(tensor_in("x", x), i), read(tensor_in("y", y), j)
    values = [binary(op, *pair) for op in (Op.EQ, Op.NE, Op.LT) for pair in ((a, b), (b, a))]
    check(
        [write(out(f"o{k}", (3, 77), DType.BOOL), (i, j), v) for k, v in enumerate(values)],
        {"x": x, "y": y},
    )


SHAPES = [
    (1,),
    (7,),
    (64,),
    (1000,),
    (3, 5),
    (5, 1),
    (1, 9),
    (2, 3, 4),
    (17, 33),
    (4, 1, 8, 3),
    (70000,),
    (300, 301),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape):
    x, y = torch.randn(shape), torch.randn(shape[-1:])
    axes = space(shape)
    a, b = read(tensor_in("x", x), *axes), read(tensor_in("y", y), axes[-1])
    value = binary(Op.ADD, binary(Op.MUL, a, b), const(1.5, DType.F32))
    check([write(out("o", shape), axes, value)], {"x": x, "y": y})


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_permuted_and_broadcast(order):
    x = torch.randn(5, 18, 35).permute(order)
    y = torch.randn(1, 18, 1).expand(5, 18, 35).permute(order)
    axes = space(x.shape)
    a, b = read(tensor_in("x", x), *axes), read(tensor_in("y", y), *axes)
    check([write(out("o", x.shape), axes, binary(Op.MUL, a, b))], {"x": x, "y": y})


def test_strided_and_flipped():
    x = torch.randn(40, 50)
    b = tensor_in("x", x)
    i, j = space((20, 17))
    strided = load(b, linear([axis(i), axis(j)], (100, 3), 1))
    flipped = load(b, linear([axis(i), axis(j)], (-50, -1), 39 * 50 + 20))
    check([write(out("o", (20, 17)), (i, j), binary(Op.SUB, strided, flipped))], {"x": x})


def test_strided_store():
    x = torch.randn(33, 20)
    b, o = tensor_in("x", x), Buffer("o", DType.F32, (33, 20), (1, 33), Kind.OUTPUT)
    i, j = space((33, 20))
    store = Store(o, linear([axis(i), axis(j)], o.strides), unary(Op.NEG, read(b, i, j)), (i, j))
    from frameloom.ir.program import Kernel
    from tests.codegen.kernels import compile_kernel

    result = torch.empty(20, 33).t()
    compile_kernel(Kernel("k", (store,)))({"x": x, "o": result})
    torch.testing.assert_close(result, -x)


@pytest.mark.parametrize("count", [3, 37, 5000])
def test_gather(count):
    table, rows = torch.randn(100, 24), torch.randint(0, 100, (count,))
    i, j = space((count, 24))
    t, r = tensor_in("t", table), tensor_in("r", rows)
    value = load(t, linear([read(r, i), axis(j)], t.strides))
    check([write(out("o", (count, 24)), (i, j), value)], {"t": table, "r": rows})
    (k,) = space((count,))
    check([write(out("o", (count,)), (k,), load(t, read(r, k)))], {"t": table, "r": rows})


@pytest.mark.parametrize("width", [5, 40])
def test_masked_loads(width):
    # pad by 2 on the left and 3 on the right; concatenation of two rows
    x, y = torch.randn(9, width), torch.randn(9, 7)
    bx, by = tensor_in("x", x), tensor_in("y", y)
    i, j = space((9, width + 5))
    inside = binary(
        Op.AND, binary(Op.GE, axis(j), index(2)), binary(Op.LT, axis(j), index(width + 2))
    )
    padded = load(bx, linear([axis(i), axis(j)], bx.strides, -2), inside)
    i2, k = space((9, width + 7))
    left = binary(Op.LT, axis(k), index(width))
    joined = where(
        left,
        load(bx, linear([axis(i2), axis(k)], bx.strides), left),
        load(by, linear([axis(i2), axis(k)], by.strides, -width), unary(Op.NOT, left)),
    )
    check([write(out("p", (9, width + 5)), (i, j), padded)], {"x": x})
    check([write(out("c", (9, width + 7)), (i2, k), joined)], {"x": x, "y": y})


def test_positions_as_values():
    i, j = space((9, 37))
    total = cast(DType.F32, add(axis(i), axis(j), axis(j)))
    tri = where(binary(Op.LE, axis(j), axis(i)), const(1, DType.I64), axis(j))
    x = torch.zeros(1)
    stores = [
        write(out("o", (9, 37)), (i, j), total),
        write(out("t", (9, 37), DType.I64), (i, j), tri),
    ]
    check(stores, {"x": x})


def test_in_place_and_several_stores():
    x, y = torch.randn(11, 29), torch.randn(11, 29)
    i, j = space((11, 29))
    a, b = read(tensor_in("x", x), i, j), read(tensor_in("y", y), i, j)
    total = binary(Op.ADD, a, b)
    stores = [
        write(tensor_in("x", x), (i, j), total),
        write(out("o", (11, 29)), (i, j), unary(Op.EXP, total)),
    ]
    check(stores, {"x": x, "y": y})


def test_mixed_widths():
    x, k, m = torch.randn(90), torch.randint(-5, 5, (90,)), torch.rand(90) > 0.5
    (i,) = space((90,))
    a, n, c = (read(tensor_in(name, t), i) for name, t in (("x", x), ("k", k), ("m", m)))
    value = where(c, cast(DType.F32, n), a)
    wide = binary(Op.ADD, cast(DType.F64, a), cast(DType.F64, n))
    stores = [write(out("o", (90,)), (i,), value), write(out("w", (90,), DType.F64), (i,), wide)]
    check(stores, {"x": x, "k": k, "m": m})


@pytest.mark.parametrize(
    "shape", [(16, 16), (64, 64), (33, 70), (5, 200), (200, 5), (130, 67), (1, 30), (3, 3)]
)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int16, torch.bool, torch.bfloat16]
)
def test_transposed(shape, dtype):
    x = sample(DType.of(dtype), shape[::-1]).t()
    axes = space(shape)
    value = read(tensor_in("x", x), *axes)
    if not dtype.is_floating_point or dtype is torch.float32 or dtype is torch.float64:
        value = binary(Op.MUL, value, value)
    check([write(out("o", shape, value.dtype), axes, value)], {"x": x})


def test_transposed_planes():
    x = torch.randn(3, 40, 50).transpose(1, 2)
    y = torch.randn(3, 50, 40)
    axes = space(x.shape)
    value = binary(Op.ADD, read(tensor_in("x", x), *axes), read(tensor_in("y", y), *axes))
    check([write(out("o", x.shape), axes, value)], {"x": x, "y": y})


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.bool,
        torch.bfloat16,
        torch.uint8,
    ],
)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
def test_masked_gather(dtype, index_dtype):
    table = sample(DType.of(dtype), (50,))
    places = torch.randint(-30, 80, (77,)).to(index_dtype)
    t, p, (i,) = tensor_in("t", table), tensor_in("p", places), space((77,))
    place = cast(DType.I64, read(p, i))
    inside = binary(Op.AND, binary(Op.GE, place, index(0)), binary(Op.LT, place, index(50)))
    check(
        [write(out("o", (77,), t.dtype), (i,), load(t, place, inside))], {"t": table, "p": places}
    )
    # Every third element, where there is one.
    spread = binary(Op.LT, axis(i), index(17))
    check(
        [write(out("o", (77,), t.dtype), (i,), load(t, linear([axis(i)], (3,)), spread))],
        {"t": table},
    )
    safe = places.remainder(50)
    check(
        [write(out("o", (77,), t.dtype), (i,), load(t, cast(DType.I64, read(p, i))))],
        {"t": table, "p": safe},
    )


@pytest.mark.parametrize("rows", [384, 509])
def test_tables_that_are_read_again(rows):
    """The same tables for every head, larger than the first-level cache: blocks of rows, where the rows can be cut evenly."""
    x, t = torch.randn(3, rows, 64), torch.randn(rows, 64)
    head, row, j = space(x.shape)
    value = binary(Op.MUL, read(tensor_in("x", x), head, row, j), read(tensor_in("t", t), row, j))
    source = check([write(out("o", x.shape), (head, row, j), value)], {"x": x, "t": t})
    assert (" 4096l" in source) == (rows == 384)
