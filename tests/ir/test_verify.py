"""The verifier: what may be written, and how often."""

import pytest

from frameloom.errors import VerifyError
from frameloom.ir import node as ir
from frameloom.ir.dtype import DType
from frameloom.ir.index import add, floordiv, linear, mod, mul
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Store, View
from frameloom.ir.substitute import space
from frameloom.ir.symbolic.shape_env import ShapeEnv
from frameloom.ir.verify import verify

WHOLE = Buffer("whole", DType.F32, (8,), (1,), Kind.OUTPUT)
OTHER = Buffer("other", DType.F32, (4,), (1,), Kind.OUTPUT)
(AXIS,) = space([4])
AT = ir.axis(AXIS)


def part(name, start):
    store = Store(WHOLE, linear([AT], [1], start), ir.const(1.0, DType.F32), (AXIS,))
    return Kernel(name, (store,))


def program(*steps):
    return Program((), steps, (View(WHOLE, (8,), (1,)), View(OTHER, (4,), (1,))))


READER = Kernel("reader", (Store(OTHER, linear([AT], [1], 0), ir.load(WHOLE, AT), (AXIS,)),))


def test_pieces_of_a_buffer_may_be_written_by_several_kernels():
    verify(program(part("a", 0), part("b", 4), READER))


@pytest.mark.parametrize(
    "steps",
    [
        (part("a", 0), part("b", 0), READER),
        (part("a", 0), READER, part("b", 4)),
    ],
    ids=["the same piece", "after it was read"],
)
def test_what_is_there_is_not_written_again(steps):
    with pytest.raises(VerifyError, match="written twice"):
        verify(program(*steps))


def test_offsets_are_where_positions_come_to():
    """Bounds of the quotient and of what is subtracted from it are far apart; their sum is not."""
    (a,) = space([10])
    i, one = ir.axis(a), ir.index(1)
    rows = mul(floordiv(add(mul(i, 3), one), 4), 4)

    def reads_from(first):
        offset = add(rows, mul(i, -4), mod(add(i, one), 2), ir.index(first))
        many = Buffer("many", DType.F32, (10,), (1,), Kind.OUTPUT)
        made = Buffer("made", DType.F32, (10,), (1,), Kind.OUTPUT)
        kernels = (
            Kernel("fill", (Store(many, i, ir.const(1.0, DType.F32), (a,)),)),
            Kernel("read", (Store(made, i, ir.load(many, offset), (a,)),)),
        )
        return Program((), kernels, tuple(View(b, (10,), (1,)) for b in (many, made)))

    verify(reads_from(8))
    for first in (7, 9):
        with pytest.raises(VerifyError, match="which has 10 elements"):
            verify(reads_from(first))


def test_offsets_over_sizes_that_vary_are_where_those_of_the_captured_call_come_to():
    """Nothing tells that the rows of the store are as far apart as they are long."""
    shape_env = ShapeEnv()
    rows, apart = shape_env.symbol(2, None), shape_env.symbol(12, None)
    i, j = space([rows, 2])
    place = add(mul(ir.axis(i), 8), mul(ir.axis(j), 2))

    def reads_from(first):
        row = floordiv(mod(mod(place, apart), 8), 2)
        kernels = (
            Kernel("fill", (Store(WHOLE, AT, ir.const(1.0, DType.F32), (AXIS,)),)),
            Kernel("more", (Store(WHOLE, linear([AT], [1], 4), ir.const(1.0, DType.F32), (AXIS,)),)),
            Kernel("read", (Store(MADE, place, ir.load(WHOLE, add(mul(row, 4), ir.index(first))), (i, j)),)),
        )  # fmt: skip
        return Program((), kernels, (View(WHOLE, (8,), (1,)), View(MADE, (rows, 2), (8, 2))))

    MADE = Buffer("made", DType.F32, (rows, 2), (8, 2), Kind.OUTPUT)
    verify(reads_from(3))
    with pytest.raises(VerifyError, match="which has 8 elements"):
        verify(reads_from(4))
