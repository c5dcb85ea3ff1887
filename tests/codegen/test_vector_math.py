"""Accuracy and special values of the vector functions, over all exponents."""

import pytest
import torch

from frameloom.ir.dtype import DType
from frameloom.ir.node import binary, unary
from frameloom.ir.ops import Op
from frameloom.ir.program import Kernel
from tests.codegen.kernels import BOTH, compile_kernel, out, read, space, tensor_in, write

# op -> (PyTorch's function, greatest error allowed in units of the last place)
F32 = {
    Op.EXP: (torch.exp, 1.1), Op.EXP2: (torch.exp2, 1.1), Op.EXPM1: (torch.expm1, 1.5), Op.LOG: (torch.log, 1.0),
    Op.LOG2: (torch.log2, 1.1), Op.LOG10: (torch.log10, 1.3), Op.LOG1P: (torch.log1p, 1.5), Op.SIN: (torch.sin, 1.9),
    Op.COS: (torch.cos, 1.9), Op.TAN: (torch.tan, 1.1), Op.TANH: (torch.tanh, 1.6), Op.SIGMOID: (torch.sigmoid, 2.0),
    Op.ERF: (torch.erf, 1.2), Op.ERFC: (torch.erfc, 1.6), Op.ASIN: (torch.asin, 1.1), Op.ACOS: (torch.acos, 1.1),
    Op.ATAN: (torch.atan, 1.1), Op.SINH: (torch.sinh, 1.7), Op.COSH: (torch.cosh, 1.5), Op.ASINH: (torch.asinh, 1.9),
    Op.ACOSH: (torch.acosh, 1.9), Op.ATANH: (torch.atanh, 1.1), Op.LGAMMA: (torch.lgamma, 2.0),
}  # fmt: skip
SPECIAL = [
    float("nan"),
    float("inf"),
    float("-inf"),
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    -1e-45,
    1e-40,
    -1e-40,
    3e38,
    -3e38,
    0.5,
    -0.5,
]


def sweep() -> torch.Tensor:
    """Floats of every exponent and both signs."""
    bits = torch.arange(0, 0x7F800000, 1531, dtype=torch.int32)
    jitter = torch.randint(
        0, 1531, bits.shape, dtype=torch.int32, generator=torch.Generator().manual_seed(1)
    )
    x = (bits + jitter).clamp(max=0x7F7FFFFF).view(torch.float32)
    near_pi = (torch.arange(1, 6000, dtype=torch.float64) * torch.pi / 2).float()
    return torch.cat(
        [x, -x, near_pi, torch.linspace(-30, 30, 400_001), torch.linspace(-1.5, 1.5, 200_001)]
    )


def run(op, isa, *xs):
    buffers = [tensor_in(f"x{i}", x) for i, x in enumerate(xs)]
    (i,) = space(xs[0].shape)
    args = [read(b, i) for b in buffers]
    o = out("o", xs[0].shape, DType.of(xs[0].dtype))
    value = unary(op, *args) if len(args) == 1 else binary(op, *args)
    result = torch.empty_like(xs[0])
    compile_kernel(Kernel(op.value, (write(o, (i,), value),)), isa)(
        {"o": result, **{b.name: x for b, x in zip(buffers, xs, strict=True)}}
    )
    return result


def error(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """In units of the last place of the f32 nearest to `want`."""
    rounded = want.float().abs()
    unit = (torch.nextafter(rounded, torch.tensor(float("inf"))).double() - rounded.double()).clamp(
        min=2.0**-149
    )
    unit = torch.where(rounded.isinf(), torch.tensor(2.0**104, dtype=torch.float64), unit)
    off = (got.double() - want).abs() / unit
    limit = torch.finfo(torch.float32).max
    # One more unit than the greatest number counts as infinity.
    clipped = got.double().clamp(-limit, limit)
    off = torch.where(
        got.isinf() | rounded.isinf(), (clipped - want.clamp(-limit, limit)).abs() / 2.0**104, off
    )
    return torch.where(got.isnan() & want.isnan(), 0.0, off)


@pytest.mark.parametrize("isa", BOTH, ids=lambda i: i.name)
@pytest.mark.parametrize("op", F32, ids=lambda op: op.value)
def test_accuracy(op, isa):
    function, allowed = F32[op]
    x = sweep()
    if op is Op.LGAMMA:
        x = x[(x > 0) & (x < 1e30)]
    got = run(op, isa, x)
    off = error(got, function(x.double()))
    worst = off.argmax()
    assert not off.isnan().any() and off.max() <= allowed, (
        f"{off[worst]:.3f} at {x[worst]:.9g} ({x[worst].item().hex()})"
    )


@pytest.mark.parametrize("isa", BOTH, ids=lambda i: i.name)
@pytest.mark.parametrize("op", F32, ids=lambda op: op.value)
def test_special_values(op, isa):
    x = torch.tensor(SPECIAL)
    got, want = run(op, isa, x), F32[op][0](x)
    torch.testing.assert_close(got, want, equal_nan=True, rtol=3e-7, atol=2e-45)
    # Eager's log1p loses the least subnormal number.
    zeros = (want == 0) & (got == 0)
    assert torch.equal(got[zeros].signbit(), want[zeros].signbit()), (got, want)


@pytest.mark.parametrize("isa", BOTH, ids=lambda i: i.name)
@pytest.mark.parametrize("op", F32, ids=lambda op: op.value)
def test_double(op, isa):
    x = torch.cat(
        [
            torch.linspace(-20, 20, 1003, dtype=torch.float64),
            torch.tensor(SPECIAL, dtype=torch.float64),
        ]
    )
    got, want = run(op, isa, x), F32[op][0](x)
    torch.testing.assert_close(
        got, want, equal_nan=True, rtol=2e-15, atol=1e-300 if op is not Op.LGAMMA else 1e-15
    )


@pytest.mark.parametrize("isa", BOTH, ids=lambda i: i.name)
@pytest.mark.parametrize(
    "op",
    [Op.POW, Op.ATAN2, Op.FMOD, Op.MOD, Op.NEXTAFTER, Op.COPYSIGN],
    ids=lambda o: o.value,
)
def test_two_arguments(op, isa):
    from frameloom.ir.interp import function

    special = torch.tensor([*SPECIAL, 2.0, 3.0, -3.0, -2.5])
    a, b = torch.cartesian_prod(special, special).T.contiguous()
    if op in (Op.FMOD, Op.MOD):
        # Eager gives NaN where the quotient overflows.
        kept = ~((a / b).abs() > 1e30) | (b == 0)
        a, b = a[kept], b[kept]
    a, b = torch.cat([a, torch.randn(3000) * 10]), torch.cat([b, torch.randn(3000) * 10])
    for dtype in (torch.float32, torch.float64):
        x, y = a.to(dtype), b.to(dtype)
        torch.testing.assert_close(
            run(op, isa, x, y), function(op)(x, y), equal_nan=True, rtol=3e-7, atol=2e-45
        )


@pytest.mark.parametrize("isa", BOTH, ids=lambda i: i.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sums_of_exponentials(dtype, isa):
    from frameloom.ir.interp import function

    x, y = torch.cartesian_prod(*2 * [torch.tensor([*SPECIAL, 2.0, -3.0])]).T.contiguous().to(dtype)
    error = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        run(Op.LOGADDEXP, isa, x, y),
        function(Op.LOGADDEXP)(x, y),
        equal_nan=True,
        rtol=error,
        atol=error,
    )
