"""The reference interpreter on kernels written by hand."""

import torch

from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.node import Node, axis, binary, cast, const, load, unary, where
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Extern, Kernel, Kind, Program, Store, View
from frameloom.ir.substitute import fold, space


def buffer(name, t, kind=Kind.INPUT):
    return Buffer(name, DType.of(t.dtype), tuple(t.shape), t.stride(), kind)


def softmax_program(x):
    given, out = buffer("x", x), buffer("y", x, Kind.OUTPUT)
    i, j = space(x.shape)

    def at(a):
        return load(given, linear([axis(i), axis(a)], x.stride()))

    top = fold("max", (j,), at(j))
    e = unary(Op.EXP, binary(Op.SUB, at(j), top))
    value = binary(Op.DIV, e, fold("sum", (j,), e))
    store = Store(out, linear([axis(i), axis(j)], x.stride()), value, (i, j))
    return Program(
        (given,), (Kernel("softmax", (store,)),), (View(out, tuple(x.shape), x.stride()),)
    )


def test_softmax_is_one_store():
    x = torch.randn(5, 7)
    torch.testing.assert_close(interp.run(softmax_program(x), [x])[0], x.softmax(-1))


def test_strided_input_and_library_call():
    x = torch.randn(7, 5).t()
    program = softmax_program(x)
    out = program.outputs[0].buffer
    product = Buffer("z", DType.F32, (5, 5), (5, 1), Kind.TEMP)
    call = Extern(
        "aten.mm.default", (View(out, (5, 7), (1, 5)), View(out, (7, 5), (5, 1))), (), (product,)
    )
    program = Program(
        program.inputs, (*program.steps, call), (View(product, (5, 5), (5, 1)), 0, (3,))
    )
    z, same, three = interp.run(program, [x])
    torch.testing.assert_close(z, x.softmax(-1) @ x.softmax(-1).t())
    assert same is x and three == 3


def test_masked_load_reads_nothing_outside():
    x = torch.randn(3)
    given, out = buffer("x", x), Buffer("y", DType.F32, (5,), (1,), Kind.OUTPUT)
    (i,) = space((5,))
    inside = binary(Op.LT, axis(i), const(3, DType.I64))
    value = where(inside, load(given, axis(i), inside), const(9, DType.F32))
    program = Program(
        (given,), (Kernel("pad", (Store(out, axis(i), value, (i,)),)),), (View(out, (5,), (1,)),)
    )
    torch.testing.assert_close(
        interp.run(program, [x])[0], torch.nn.functional.pad(x, (0, 2), value=9.0)
    )


def test_halves_are_cast_around_arithmetic():
    x = torch.randn(9, dtype=torch.bfloat16)
    given, out = buffer("x", x), buffer("y", x, Kind.OUTPUT)
    (i,) = space((9,))
    wide = cast(DType.F32, load(given, axis(i)))
    value = cast(DType.BF16, binary(Op.MUL, wide, wide))
    program = Program(
        (given,), (Kernel("square", (Store(out, axis(i), value, (i,)),)),), (View(out, (9,), (1,)),)
    )
    assert torch.equal(interp.run(program, [x])[0], x * x)
    wrong = binary(Op.MUL, load(given, axis(i)), load(given, axis(i)))
    try:
        interp.compute(wrong, {given: x})
    except AssertionError as error:
        assert "16-bit" in str(error)
    else:
        raise AssertionError("arithmetic on halves must be refused")


def test_writes_an_input_in_place():
    x = torch.arange(4.0)
    given = buffer("x", x)
    (i,) = space((4,))
    store = Store(given, axis(i), binary(Op.ADD, load(given, axis(i)), const(1, DType.F32)), (i,))
    interp.run(Program((given,), (Kernel("k", (store,)),), ()), [x])
    assert x.tolist() == [1, 2, 3, 4]


def test_an_element_is_written_over_itself():
    x = torch.tensor(3)
    given = buffer("x", x)
    zero = const(0, DType.I64)
    store = Store(given, zero, load(given, zero), ())
    interp.run(Program((given,), (Kernel("k", (store,)),), ()), [x])
    assert x == 3


def test_constants_differ_by_sign_and_type():
    assert const(0.0, DType.F32) is not const(-0.0, DType.F32)
    assert const(float("nan"), DType.F32) is const(float("nan"), DType.F32)
    assert Node(Op.CONST, DType.I64, (), 1) is not const(True, DType.BOOL)


def test_both_parts_of_complex_memory_are_unwritten():
    held = torch.view_as_real(interp.UNWRITTEN.fill(torch.zeros(3, dtype=torch.complex64)))
    assert held.isnan().all()
