"""Other ways to launch a kernel: each computes the same, and is worth trying."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom.codegen.schedule.partition import launches
from frameloom.codegen.schedule.tune import MOST, Tuning
from frameloom.codegen.triton.module import variants
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, axis, binary, const, index, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Kernel
from frameloom.ir.substitute import fold
from tests.codegen.kernels import out, read, tensor_in, write
from tests.codegen.test_triton import rows, softmax
from tests.codegen.triton_kernels import TINY
from tests.codegen.triton_kernels import load as interpreted


def one(kernel, chip=TINY):
    (launched,) = launches(kernel, chip)
    (found,) = variants([launched], chip)
    return found


def relu(n, m):
    x, b, i, j = rows(n, m)
    value = binary(Op.MAX, read(b, i, j), const(0, DType.F32))
    return Kernel("relu", (write(out("o", (n, m)), (i, j), value),)), x, torch.relu


def turned(n, m):
    x, b, i, j = rows(n, m)
    value = binary(Op.ADD, read(b, i, j), read(b, j, i))
    return Kernel("turned", (write(out("o", (n, m)), (i, j), value),)), x, lambda x: x + x.t()


def of_rows(n, m):
    x, b, i, j = rows(n, m)
    kernel = Kernel("softmax", (write(out("o", (n, m)), (i, j), softmax(b, i, j)),))
    return kernel, x, lambda x: torch.softmax(x, -1)


def of_long_rows(n, m):
    x, b, i, _ = rows(n, m)
    r = Axis("r", m)
    kernel = Kernel("sums", (write(out("o", (n,)), (i,), fold("sum", (r,), read(b, i, r))),))
    return kernel, x, lambda x: x.sum(1)


def of_columns(n, m):
    x, b, i, j = rows(n, m)
    r = Axis("r", n)
    kernel = Kernel("sums", (write(out("o", (m,)), (j,), fold("sum", (r,), read(b, r, j))),))
    return kernel, x, lambda x: x.sum(0)


CASES = [
    (relu, 40, 300),
    (turned, 96, 96),
    (of_rows, 3, 700),
    (of_rows, 40, 40),
    (of_long_rows, 9, 20001),
    (of_columns, 70, 300),
]


@pytest.mark.parametrize("make, n, m", CASES)
def test_every_candidate_computes_the_same(make, n, m):
    kernel, x, plain = make(n, m)
    found = one(kernel)
    assert 1 <= len(found.tunings) <= MOST
    seen = set()
    for tuning in found.tunings:
        source = found.source(tuning)
        result = torch.zeros_like(plain(x))
        given = {"x": x, "o": result}
        interpreted(source)[source.grid](*(given[b.name] for b in source.entries[0].buffers))
        torch.testing.assert_close(result, plain(x), rtol=1e-5, atol=1e-5)
        assert Tuning.from_json(tuning.to_json()) == tuning
        seen.add((source.text, source.warps, source.stages))
    default = found.source()
    assert (default.text, default.warps, default.stages) not in seen


def test_rows_are_tried_at_once_and_in_steps():
    assert {t.persistent for t in one(of_rows(64, 4096)[0]).tunings} == {True, False}
    assert {t.persistent for t in one(of_rows(64, 20001)[0]).tunings} == {True, False}


def test_what_addresses_depend_on_is_not_made_up():
    x, b, i, j = rows(8, 16)
    at = tensor_in("at", torch.zeros(8, dtype=torch.int64))
    gathered = load(b, binary(Op.ADD, binary(Op.MUL, read(at, i), index(16)), axis(j)))
    kernel = Kernel("rows", (write(out("o", (8, 16)), (i, j), gathered),))
    assert one(kernel).tunings == []
