"""Rewrite rules that do not hold for every value."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "add_zero_of_floats",
        "ir/rules/algebra.py",
        "Rule(of(Op.ADD, x, exactly(-0.0)), lambda x: x, floats)",
        "Rule(of(Op.ADD, x, exactly(0.0)), lambda x: x, floats)",
        "`x + 0.0` stays -0.0 for x = -0.0",
    ),
    Mutant(
        "not_less_of_floats",
        "ir/rules/selection.py",
        "if x.dtype.is_float and p.op not in (Op.EQ, Op.NE):",
        "if x.dtype.is_float and p.op not in (Op.EQ, Op.NE, Op.LT):",
        "`~(x < y)` becomes `x >= y`, which is false for NaN",
    ),
    Mutant(
        "reciprocal_of_any_number",
        "ir/rules/algebra.py",
        "if abs(mantissa) != 0.5 or abs(exponent) > 120:",
        "if abs(mantissa) < 0.5 or abs(exponent) > 120:",
        "`x / 3` becomes `x * (1 / 3)`, which rounds twice",
    ),
    Mutant(
        "times_zero_of_floats",
        "ir/rules/algebra.py",
        "lambda x: const(0, x.dtype), integers)",
        "lambda x: const(0, x.dtype))",
        "`x * 0.0` is 0 for infinite x and NaN, and for negative x not -0.0",
    ),
    Mutant(
        "limits_that_are_nan",
        "ir/rules/algebra.py",
        "if math.isnan(c.arg) or math.isnan(d.arg) or (c.arg",
        "if (c.arg",
        "`x.clamp(min=nan).clamp(min=0)` forgets one of the limits",
    ),
    Mutant(
        "bf16_holds_f16",
        "ir/rules/casts.py",
        "return wide.is_float and (wide.bits > narrow.bits)",
        "return wide.is_float and (wide.bits >= narrow.bits)",
        "`x.bfloat16().float()` of float16 x is not rounded",
    ),
    Mutant(
        "unsigned_holds_signed",
        "ir/rules/casts.py",
        'return narrow.kind == "u" and wide.bits >= narrow.bits',
        "return wide.bits >= narrow.bits",
        "`x.to(torch.uint8).to(torch.int32)` of int8 x stays negative",
    ),
]
