"""int, float, complex and bool: arithmetic, conversions, methods, and numbers that tell how tensors are computed.

PYTEST_DONT_REWRITE
"""

import math
import sys

import torch

from tests.programs.program import X, program


@program()
def integer_arithmetic(x):
    n = 7 // 2 + 7 % 3 - -3 * 2 + 2**5
    n <<= 1
    n |= 1
    n &= ~4
    n ^= 3
    return x * n, n, divmod(-7, 2), 7 >> 1, -7 // 2, -7 % 3


@program()
def float_arithmetic(x):
    f = 1.5
    f /= 0.25
    f **= 2
    return x * f, f // 5, f % 5, -f, abs(-f), divmod(f, 2.5), 1e308 * 10, 0.1 + 0.2


@program()
def complex_numbers(x):
    c = complex(1, 2) * 2j + 1
    return x * c.real + c.imag, c, c.conjugate(), abs(3 + 4j), c == complex(-3, 2), c**2


@program()
def int_methods(x):
    n = 10
    return (
        x + n.bit_length(), n.bit_count(), n.to_bytes(2, "big"), int.from_bytes(b"\x01\x00", "big"), n.real, n.numerator,
        n.conjugate(), (10).as_integer_ratio(), n.__add__(1), n.__index__(),
    )  # fmt: skip


@program()
def float_methods(x):
    f = 2.5
    return (
        x * f, f.is_integer(), (4.0).is_integer(), f.hex(), float.fromhex("0x1.8p1"), f.as_integer_ratio(),
        round(f), round(3.14159, 2), math.floor(f), math.ceil(f), math.trunc(-f), int(-2.7),
    )  # fmt: skip


@program()
def not_a_number_and_infinity(x):
    nan, inf = float("nan"), float("inf")
    return (
        x + inf,
        nan,
        nan == nan,
        inf > 1,
        -inf,
        math.isnan(nan),
        math.isinf(inf),
        max(nan, 1),
        0.0 == -0.0,
    )


@program()
def booleans_are_integers(x):
    flag = x.shape[0] > 2
    return (
        x + flag,
        True + True,
        flag * 3,
        sum([flag, flag, False]),
        flag is True,
        flag & 1,
        not flag,
    )


@program()
def chained_comparison(x):
    n = x.shape[1]
    if 2 < n <= 4 != 7:
        x = x + n
    return x, 1 < 3 > 2, 1 < 0 < 1 / n


@program()
def short_circuit(x):
    n = 0
    a = n and 1 / n
    b = n or "empty"
    c = None or 0 or [] or "last"
    return x + (a or 2), a, b, c, 5 and 6


@program()
def conversions(x):
    return (
        x * float("1.5") + int("12") + int("ff", 16),
        int(3.9),
        float(2),
        bool([]),
        bool("a"),
        complex("1+2j"),
        str(1.0),
        repr(0.1),
    )


@program()
def division_by_zero_is_caught(x):
    try:
        n = 1 / 0
    except ZeroDivisionError as error:
        n = str(error)
    return x + 1, n


@program()
def number_argument_decides(x, n=3):
    out = x
    for _ in range(n):
        out = out * 2
    return out if n > 2 else x


@program(calls=[(X, 2), (X, 3), (X, 2.0), (X, True)], graphs=4)
def number_of_each_type(x, n):
    return x * n, n, type(n) is bool, isinstance(n, int)


@program()
def big_integers(x):
    n = 2**100
    return x + float(n % 1000), n, n.bit_length(), math.isqrt(n), n // 3, -n >> 90


@program()
def size_arithmetic(x):
    rows, columns = x.shape
    half = columns // 2
    return (
        x[:, :half] * x[:, half:],
        x.reshape(rows * half, 2),
        x.numel() / rows,
        x.size(-1) ** 0.5,
        -rows,
    )


@program()
def math_functions(x):
    scale = (
        math.sqrt(x.shape[-1])
        + math.exp(0)
        + math.log(math.e)
        + math.cos(math.pi)
        + math.hypot(3, 4)
    )
    return (
        x / scale,
        math.gcd(12, 18),
        math.prod([1, 2, 3]),
        math.comb(5, 2),
        math.fsum([0.1] * 10),
        math.log2(8),
        math.factorial(5),
        math.isclose(0.1 + 0.2, 0.3),
        math.inf,
        math.copysign(1, -0.0),
        math.lcm(4, 6),
        math.dist((0, 0), (3, 4)),
    )


@program(graphs=1, breaks="")
def math_domain_error(x):
    y = x + 1
    try:
        math.sqrt(-1)
    except ValueError as error:
        return y, str(error)


@program()
def tensor_and_number_operators(x):
    return (
        1 - x,
        2 / (x + 10),
        3**x,
        7 // (x + 10),
        5 % (x + 10),
        -x,
        +x,
        abs(x),
        1 + x * 2.0,
        x == 1,
        2 > x,
    )


@program()
def dtype_follows_number(x):
    i = x.long()
    return (
        i + 1,
        i + 1.5,
        i * True,
        i / 2,
        i // 2,
        x.half() * 2.5,
        i + 1j,
        torch.result_type(i, 1.5),
    )


@program(graphs=1, breaks="warning" if sys.version_info >= (3, 12) else "")
def inverted_boolean_warns(x):
    flag = x.shape[0] > 2
    return x + 1, ~flag
