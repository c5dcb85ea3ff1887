"""Operators that the program defines: what they write, what they return, and Triton kernels.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import weakref
from typing import List, Optional, Tuple  # noqa: UP035 (schemas are made of these, too)

import pytest
import torch
from torch import Tensor
from torch.library import Library, custom_op

from frameloom import FullGraphError, explain, jit
from tests.programs.program import X, program


@custom_op("frameloom_programs::add_to_all", mutates_args=("outs",))
def add_to_all(outs: List[Tensor], x: Tensor) -> None:  # noqa: UP006
    for out in outs:
        out.add_(x)


@custom_op("frameloom_programs::tell", mutates_args=("a", "b"))
def tell(
    x: Tensor, a: Optional[Tensor], b: Optional[Tensor] = None, k: float = 1.0
) -> Tuple[Tensor, Tensor]:  # noqa: UP006, UP045
    for given in (a, b):
        if given is not None:
            given.add_(k)
    return x * k, x + k


@tell.register_fake
def _(x, a, b=None, k=1.0):
    return torch.empty_like(x), torch.empty_like(x)


LIBRARY = Library("frameloom_programs", "FRAGMENT")
LIBRARY.define("add_in_place(Tensor(a!) x, Tensor y) -> Tensor(a!)")
LIBRARY.define("other_view(Tensor(a!) x) -> Tensor(a!)")
LIBRARY.impl("add_in_place", lambda x, y: x.add_(y), "CompositeExplicitAutograd")
LIBRARY.impl("other_view", lambda x: x.add_(1).view(-1), "CompositeExplicitAutograd")
OPS = torch.ops.frameloom_programs


# --- what they write
@program()
def writes_a_list(x):
    a, b = x + 1, x + 2
    add_to_all([a, b], x)
    return a * b


@program()
def writes_the_caller_s_list(x):
    ys = [x, x + 1]
    add_to_all(ys, x * 2)
    return ys[0] + 1, ys


@program()
def writes_views_in_a_list(x):
    y = x + 1
    add_to_all([y[0], y[1]], x[0] * 2)
    return y


@program()
def writes_an_empty_list(x):
    add_to_all([], x)
    return x + 1


@program(breaks="unsupported_op")
def writes_the_same_tensor_twice(x):
    y = x + 1
    add_to_all([y, y], x * 2)
    return y


@program(graphs=2, breaks="unsupported_op")
def reads_what_it_writes(x):
    y, z = x + 1, x + 2
    add_to_all([y, z], y)
    return y + z


@program(
    calls=[
        (X, True, False),
        (X, False, True),
        (X, False, False),
        (X, True, True),
        (X, True, False),
    ],
    graphs=4,
)
def writes_optional_arguments(x, first, second):
    a, b = x + 1, x * 3
    results = tell(x, a if first else None, b if second else None, 2.0)
    return a, b, results, tell(x, None, k=3.0)


# --- operators that return what they write
@program()
def returns_what_it_writes(x):
    y = x + 1
    same = OPS.add_in_place(y, x)
    same.mul_(2)
    return same, same is y, y


@program()
def returns_the_written_argument(x):
    return OPS.add_in_place(x, x + 1) * 2


@program()
def returns_the_written_view(x):
    y = x + 1
    row = OPS.add_in_place(y[0], x[1])
    row.mul_(2)
    return y, row


@program(breaks="unsupported_op")
def returns_another_view_than_it_says(x):
    y = x + 1
    return OPS.other_view(y), y


# --- operators as jitted functions
@pytest.mark.parametrize(
    "op", [torch.ops.aten.sin.default, torch.ops.aten.sin, torch.ops.aten.relu]
)
def test_jitted_operators(op):
    torch.testing.assert_close(jit(op, backend="eager", fullgraph=True)(X), op(X))
    report = explain(op, backend="eager")(X)
    assert len(report.graphs) == 1 and not report.breaks


# --- references that are compared
class Odd:
    def __eq__(self, other):
        return "odd"

    __hash__ = None


@program(args=lambda: (X, Odd()), graphs=2, breaks="unknown_call opaque_object opaque_object")
def compares_weak_references(x, obj):
    y = x + 1
    reference = weakref.ref(obj)
    return y * 2, reference == reference, reference != reference  # noqa: PLR0124


# --- Triton kernels of the program
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_triton_kernel_is_one_piece_of_plain_python(fullgraph):
    tl = pytest.importorskip("triton.language")
    interpreter = pytest.importorskip("triton.runtime.interpreter")

    def double(x, out, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

    double.__globals__["tl"] = tl
    kernel = interpreter.InterpretedFunction(double)

    def launches(x):
        y = x + 1
        out = torch.empty_like(y)
        kernel[(3,)](y, out, y.numel(), block=4)
        return out * 3

    if fullgraph:
        with pytest.raises(FullGraphError, match="triton"):
            jit(launches, backend="eager", fullgraph=True)(X)
        return
    report = explain(launches, backend="eager")(X)
    torch.testing.assert_close(report.result, (X + 1) * 6)
    assert len(report.graphs) == 2
    assert {b.kind for b in report.breaks} == {"library_call"}
