"""Pointwise lowering against eager, by the interpreter: dtypes, promotion, broadcasting, strides."""

import itertools
import math

import pytest
import torch
from torch import nn

from frameloom.ir import interp
from frameloom.ir.lower import TABLE, lower
from frameloom.ir.lower.ops.pointwise import UNARY_FLOAT
from frameloom.ir.passes.fuse import fuse
from tests.ir.helpers import check

F = nn.functional
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def sample(dtype, *shape, low=-4, high=4):
    t = torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) * (high - low) + low
    if dtype.is_floating_point:
        return t.to(dtype)
    return (
        (t > 0)
        if dtype == torch.bool
        else (t.abs() * 20 if dtype == torch.uint8 else t * 20).to(dtype)
    )


SPECIAL = torch.tensor(
    [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-42, 0.5, 2.5, -2.5, 89.0, -104.0]
)


@pytest.mark.parametrize("name", UNARY_FLOAT)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.bool]
)
def test_unary(name, dtype):
    check(getattr(torch.ops.aten, name).default, sample(dtype, 3, 5))
    if dtype.is_floating_point:
        check(getattr(torch.ops.aten, name).default, SPECIAL.to(dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool])
def test_unary_of_any_dtype(dtype):
    x = sample(dtype, 4, 3)
    integer = not dtype.is_floating_point
    fs = [
        torch.isnan,
        torch.isinf,
        torch.isfinite,
        torch.signbit,
        torch.sign,
        torch.logical_not,
        torch.isposinf,
    ]
    if dtype != torch.bool:
        fs += [torch.abs, torch.neg, torch.square, torch.relu, torch.floor, torch.round]
    if integer:
        fs.append(torch.bitwise_not)
    else:
        fs += [torch.frac, torch.trunc, torch.nan_to_num]
    for f in fs:
        check(f, x)
        if not integer:
            check(f, SPECIAL.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_activations(dtype):
    x = torch.cat([sample(dtype, 40), SPECIAL.to(dtype), torch.tensor([30.0, -30.0], dtype=dtype)])
    for f in [
        F.relu, F.relu6, lambda x: F.gelu(x, approximate="tanh"), F.silu, F.mish, F.hardsigmoid, F.hardswish,
        F.elu, F.selu, F.celu, F.leaky_relu, F.hardtanh, F.hardshrink, F.softshrink, F.softplus, F.logsigmoid,
        F.tanhshrink, F.softsign, lambda x: F.threshold(x, 0.5, 20.0), lambda x: F.softplus(x, 2.0, 10.0),
        lambda x: torch.clamp(x, -1, 1), lambda x: x.clamp(min=0.3), lambda x: x.clamp(max=0.3),
        lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
    ]:  # fmt: skip
        check(f, x)
    check(lambda x: torch.logit(x, 1e-3), x, lowered=dtype == torch.float32)
    # Eager's gelu(inf) is NaN, by accident of its kernel.
    check(F.gelu, x[:40])
    check(lambda x: F.glu(x, 0), sample(dtype, 6, 4))
    check(F.prelu, sample(dtype, 2, 3, 4), sample(dtype, 3))


BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin, "eq": torch.eq, "lt": torch.lt,
    "logical_xor": torch.logical_xor, "where": lambda a, b: torch.where(a > b, a, b),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_promotion(name):
    dtypes = [
        torch.bool,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float64,
    ]
    for a, b in itertools.product(dtypes, dtypes):
        if name == "sub" and torch.bool in (a, b):
            continue
        check(BINARY[name], sample(a, 2, 3), sample(b, 2, 3))
        check(BINARY[name], sample(a, 2, 3), sample(b))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool]
)
def test_numbers_as_operands(dtype):
    x = sample(dtype, 4, 5)
    for value in (2, 0.1, 3.7):
        fs = [
            lambda x: x + value, lambda x: value * x, lambda x: x / value, lambda x: x < value,
            lambda x: x == value, lambda x: torch.where(x > 1, x, value),
        ]  # fmt: skip
        if dtype != torch.bool:
            fs += [
                lambda x: x - value,
                lambda x: value - x,
                lambda x: x.clamp(max=value),
                lambda x: x.clamp(-1, value),
            ]
        for f in fs:
            check(f, x)
    if dtype.is_floating_point:
        for e in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.7):
            check(lambda x: x.abs() ** e, x)
        check(lambda x: 2.0**x, x)
        check(lambda x: x.abs() ** x, x)


def test_float_arithmetic():
    a, b = sample(torch.float32, 50), sample(torch.float32, 50, low=-3).flip(0)
    a[:5], b[:10] = (
        torch.tensor([0.0, -0.0, math.inf, math.nan, 6.0]),
        torch.tensor([2.0, 0, -0.0, 1, 3, -2, 0, 1, math.inf, math.nan]),
    )
    # Of 16-bit floats, eager's kernels round in between, or step by their own numbers.
    in_float = [
        torch.floor_divide, lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"), torch.nextafter,
    ]  # fmt: skip
    for f in [
        torch.remainder, torch.fmod, *in_float, torch.atan2, torch.copysign, torch.logaddexp,
        torch.heaviside, torch.xlogy, torch.hypot, torch.ldexp, torch.true_divide,
    ]:  # fmt: skip
        check(f, a, b, lowered=f is not torch.hypot)
        if f not in (torch.hypot, torch.ldexp):
            check(f, a.bfloat16(), b.bfloat16(), lowered=f not in in_float)
    for f in [torch.logaddexp2, lambda a, b: torch.deg2rad(a) + torch.rad2deg(b)]:
        check(f, a, b)
    for f in [torch.lerp, torch.addcmul, torch.addcdiv]:
        check(f, a, b, sample(torch.float32, 50))
    check(lambda a, b: torch.lerp(a, b, 0.7), a, b)
    check(lambda a, b: torch.add(a, b, alpha=2), a, b)
    check(lambda a, b: torch.addcmul(a, a, b, value=0.5), a, b)
    check(lambda a, b: a.clamp(b, b + 1), a, b)


@pytest.mark.parametrize("dtype", INTS)
def test_integer_arithmetic(dtype):
    a, b = sample(dtype, 6, 7), sample(dtype, 7)
    b[b == 0] = 1
    for f in [torch.remainder, torch.fmod, torch.floor_divide, torch.pow]:
        check(f, a, b.abs() if f is torch.pow else b, lowered=False)
    for f in [
        lambda a: a % 3,
        lambda a: a // 3,
        lambda a: torch.fmod(a, 5),
        lambda a: torch.div(a, 3, rounding_mode="trunc"),
    ]:
        check(f, a)
    for f in [
        lambda a: a & 5,
        lambda a: a | 3,
        lambda a: a ^ 9,
        lambda a: a << 2,
        lambda a: a >> 1,
        lambda a: a**2,
        lambda a: a * a * a,
    ]:
        check(f, a)
    check(lambda a, b: (a & b) | (a ^ b), a, b)


def test_wide_constants_in_half():
    # Eager keeps the number in float for add and mul, and rounds it to bfloat16 for comparisons.
    x = torch.linspace(-2, 2, 200).bfloat16()
    for f in [
        lambda x: x * 0.1,
        lambda x: x + 1.001,
        lambda x: x / 3.001,
        lambda x: x - 0.3,
        lambda x: 0.3 - x,
        lambda x: 1.1 / x,
    ]:
        check(f, x, tolerance=(0, 0))
    for f in [
        lambda x: x < 0.1,
        lambda x: x >= 1.001,
        lambda x: x.clamp(0.1, 1.001),
        lambda x: torch.where(x > 0, x, 0.1),
    ]:
        check(f, x, tolerance=(0, 0))
    y = torch.tensor(0.1)
    check(lambda x, y: x * y, x, y, tolerance=(0, 0))
    check(lambda x, y: x + y, x, y, tolerance=(0, 0))


def test_shapes_and_strides():
    x = torch.randn(4, 5, 6)
    for a, b in [
        (x, x[:, :1]), (x.permute(2, 0, 1), torch.randn(6, 4, 5)), (x[1:, ::2, 3:], torch.randn(3, 3)),
        (x.expand(2, 4, 5, 6), torch.randn(6)), (x[0, 0, 0], x), (torch.randn(0, 3), torch.randn(3)),
        (torch.randn(()), torch.randn(())), (torch.randn(1, 1), torch.randn(1)), (x.transpose(0, 2), x.transpose(0, 2)),
        (torch.randn(1, 5).expand(4, 5), torch.randn(4, 1)), (x.diagonal(), torch.randn(4)), (x[1, 2:], x[3, :3]),
    ]:  # fmt: skip
        check(lambda a, b: (a * b + a, a > b), a, b)


def test_views_are_geometry():
    x = torch.randn(4, 6)
    program = check(
        lambda x: (
            x.t()[1:].unsqueeze(1).expand(-1, 3, -1) * 2,
            x.view(2, 2, 6).transpose(0, 1),
            x[:, 1],
        ),
        x,
    )
    assert len(program.steps) == 1
    check(lambda x: (x + 1).view(-1)[3:].unfold(0, 4, 2) * 2, x)
    check(lambda x: torch.relu(x.as_strided((3, 3), (1, 2), 4)), x)
    check(lambda x: [p * 2 for p in x.split(2)] + [x.chunk(3, 1)[1] + 1] + list(x.unbind(0)), x)


def test_outputs_alias_as_in_eager():
    x = torch.randn(4, 6)

    def f(x):
        y = x * 2
        return y, y.t(), x, x[1], y.reshape(-1)

    program = check(f, x)
    assert program.outputs[2] == 0
    assert program.outputs[0].buffer is program.outputs[1].buffer is program.outputs[4].buffer


def test_write_back():
    def f(x, y):
        x.mul_(y).add_(1)
        y[1:].copy_(x[:-1])
        return x * 2

    check(f, torch.randn(4, 6), torch.randn(4, 6), functional=True)
    check(lambda x: x.t().add_(1), torch.randn(4, 6), functional=True)


def write_backs(*inputs, write):
    """A graph of nothing but writes to its inputs, run on the inputs."""
    graph = torch.fx.Graph()
    places = [graph.placeholder(f"p{k}") for k in range(len(inputs))]
    write(graph, *places)
    graph.output(())
    for n in places:
        n.meta["val"] = inputs[0]
    program = lower(graph, torch.nn.Module())
    for p in (program, fuse(program)):
        given = [t.clone() for t in inputs]
        interp.run(p, given)
        yield given


def test_inputs_can_swap_values():
    def write(graph, a, b):
        for to, source in ((a, b), (b, a)):
            graph.call_function(torch.ops.aten.copy_.default, (to, source)).meta["val"] = x

    x, y = torch.randn(3), torch.randn(3)
    for new_x, new_y in write_backs(x, y, write=write):
        assert torch.equal(new_x, y) and torch.equal(new_y, x)


def test_an_input_can_be_overwritten_by_its_own_transpose():
    def write(graph, a):
        t = graph.call_function(torch.ops.aten.t.default, (a,))
        t.meta["val"] = x.t()
        graph.call_function(torch.ops.aten.copy_.default, (a, t)).meta["val"] = x

    x = torch.randn(3, 3)
    for (new_x,) in write_backs(x, write=write):
        assert torch.equal(new_x, x.t())


def test_constants_of_the_graph():
    held = torch.randn(3)
    check(lambda x: x + held, torch.randn(2, 3))


def test_unlowered_ops_are_library_calls():
    x = torch.randn(5, 5)
    check(
        lambda x: torch.relu(x @ x.t()) + torch.linalg.inv(x),
        x,
        lowered=False,
        tolerance=(1e-3, 1e-4),
    )
    check(lambda x: torch.topk(x, 2, dim=1), x, lowered=False)
    check(lambda x: torch.sort(x + 1).values * 2, x, lowered=False)
    check(lambda x: torch.view_as_real(x.to(torch.complex64)) * 2, x, lowered=False)
    check(lambda x: torch.fft.fft(x).abs(), x, lowered=False, tolerance=(1e-5, 1e-5))
    check(lambda x: x.view(torch.int32) + 0, x, lowered=False)


def test_every_row_names_an_op():
    for target in TABLE:
        op = torch.ops
        if not hasattr(torch.ops.aten, target.split(".")[1]):
            assert "_foreach_" in target, target  # of a later PyTorch
            continue
        for part in target.split("."):
            op = getattr(op, part)
        assert op._schema is not None
