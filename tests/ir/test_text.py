"""Printing and parsing are inverse, and the verifier names what is wrong where."""

import dataclasses

import pytest
import torch
from torch import nn

from frameloom.errors import VerifyError
from frameloom.ir import interp
from frameloom.ir.dtype import DType
from frameloom.ir.lower import lower
from frameloom.ir.node import Axis, Node, Reduce, axis, const, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Store
from frameloom.ir.text import parse, show
from frameloom.ir.verify import verify
from tests.ir.helpers import graph_of

F = nn.functional
PROGRAMS = {
    "softmax": (lambda x: x.softmax(-1), torch.randn(4, 6)),
    "layer_norm": (lambda x: F.gelu(F.layer_norm(x, (6,))), torch.randn(4, 6)),
    "half": (lambda x: x * 0.1 + float("inf"), torch.randn(4, 6).bfloat16()),
    "cross_entropy": (F.cross_entropy, torch.randn(4, 6), torch.tensor([0, 1, 2, 3])),
    "cat": (lambda x: torch.cat([x[1:], -x]).flip(0), torch.randn(4, 6)),
    "library": (lambda x: torch.topk((x @ x.t()).relu(), 2, dim=1)[0] + 1, torch.randn(4, 6)),
    "complex": (lambda x: torch.fft.fft(x).abs(), torch.randn(4, 6)),
    "dtypes": (
        lambda x: torch.ops.aten._to_copy(x, dtype=torch.float64).to(torch.bool).logical_not(),
        torch.randn(4),
    ),
    "outputs": (lambda x: (x, x.t(), 3, None), torch.randn(4, 6)),
    "ints": (lambda x: (x // 3 + x * 2) % 7 - (-x), torch.arange(12)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_parse_is_the_inverse_of_show(name):
    function, *inputs = PROGRAMS[name]
    gm = graph_of(function, *inputs)
    program = lower(gm.graph, gm)
    verify(program)
    text = show(program)
    again = parse(text)
    assert again == program
    assert [b.identity for b in again.inputs] == [b.identity for b in program.inputs]
    assert show(again).splitlines() == [
        line for line in text.splitlines() if not line.startswith("    #")
    ]
    for a, b in zip(interp.run(again, inputs), interp.run(program, inputs), strict=True):
        assert a is b or a == b if not isinstance(a, torch.Tensor) else torch.equal(a, b)


def test_text_is_readable():
    gm = graph_of(lambda x: x.softmax(-1), torch.randn(4, 6))
    program = lower(gm.graph, gm)
    assert show(program).splitlines()[:2] == [
        "arg0_1: input.f32((4, 6), (6, 1))",
        "_softmax: output.f32((4, 6), (6, 1))",
    ]
    assert "max.f32(arg0_1[i0x4 * 6 + r0x6], over=(r0x6,))" in show(program)


X = Buffer("x", DType.F32, (4,), (1,), Kind.INPUT)
Y = Buffer("y", DType.F32, (4,), (1,), Kind.OUTPUT)
I = Axis("i0x4", 4)  # noqa: E741


def program_of(value, buffer=Y, offset=None, axes=(I,)):
    return Program((X,), (Kernel("k", (Store(buffer, offset or axis(I), value, axes),)),), ())


FAULTS = {
    "another dtype": program_of(Node(Op.LOAD, DType.F64, (axis(I),), X)),
    "y of f32 gets a i64": program_of(axis(I)),
    "lacks axes": program_of(load(X, axis(Axis("j", 4)))),
    "two sources of one dtype": program_of(Node(Op.ADD, DType.F32, (load(X, axis(I)), const(1, DType.F64)))),
    "arithmetic on a 16-bit float": program_of(
        Node(Op.CAST, DType.F32, (Node(Op.NEG, DType.BF16, (const(1, DType.BF16),)),))
    ),
    "offsets 1..4 of y": program_of(
        load(X, axis(I)), offset=Node(Op.ADD, DType.I64, (axis(I), const(1, DType.I64)))
    ),
    "read before it is written": program_of(load(Buffer("z", DType.F32, (4,), (1,), Kind.TEMP), axis(I))),
    "floats only": program_of(Node(Op.CAST, DType.F32, (Node(Op.EXP, DType.I64, (axis(I),)),))),
    "bound twice": program_of(
        Node(
            Op.REDUCE, DType.F32,
            (Node(Op.REDUCE, DType.F32, (load(X, axis(Axis("r", 4))),), arg := Reduce("sum", (Axis("r", 4),))),),
            arg,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", FAULTS)
def test_verifier_names_the_fault(why):
    with pytest.raises(VerifyError, match=why) as caught:
        verify(FAULTS[why], blame="fuse")
    assert str(caught.value).startswith("fuse: ") and "with kernel('k')" in str(caught.value)


def test_verifier_sees_hazards():
    shifted = Store(
        X, axis(I), load(X, Node(Op.MOD, DType.I64, (axis(I), const(3, DType.I64)))), (I,)
    )
    with pytest.raises(VerifyError, match="also writes"):
        verify(Program((X,), (Kernel("k", (shifted,)),), ()))
    verify(
        Program((X,), (Kernel("k", (dataclasses.replace(shifted, value=load(X, axis(I))),)),), ())
    )
