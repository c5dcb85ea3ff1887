"""Kernels that are alike but for names."""

import torch
import torch.nn.functional as F

from frameloom.codegen.schedule.partition import launches, partition
from frameloom.codegen.structure import structure
from frameloom.codegen.triton.chip import H200
from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.lower import lower
from frameloom.ir.node import Axis, axis, load
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Store
from frameloom.ir.substitute import fold, space
from tests.ir.helpers import graph_of


def kernels(function, *inputs):
    gm = graph_of(function, *inputs)
    for n in gm.graph.nodes:
        if isinstance(n.meta.get("val"), torch.Tensor):
            n.meta["val"] = n.meta["val"].to("meta")
    return [s for s in fuse(lower(gm.graph, gm)).steps if isinstance(s, Kernel)]


def test_equal_but_for_names():
    x, w = torch.randn(8, 64), torch.randn(64)
    (a,) = kernels(lambda x, w: F.layer_norm(x, (64,), w), x, w)
    (b,) = kernels(lambda y, v: F.layer_norm(y, (64,), v), x, w)
    (c,) = kernels(lambda y, v: F.layer_norm(y, (64,), v, eps=1e-3), x, w)
    (d,) = kernels(lambda y, v: F.layer_norm(y, (64,), v), torch.randn(9, 64), w)
    assert structure(a)[0] == structure(b)[0]
    assert len({structure(k)[0] for k in (a, c, d)}) == 3


def column_sum(name):
    source = Buffer(f"{name}_in", DType.F32, (4096, 512), (512, 1), Kind.INPUT, device="cuda:0")
    into = Buffer(f"{name}_out", DType.F32, (512,), (1,), Kind.TEMP, device="cuda:0")
    (k,), row = space((512,)), Axis("row", 4096)
    value = fold("sum", (row,), load(source, linear([axis(row), axis(k)], [512, 1])))
    return Kernel(name, (Store(into, axis(k), value, (k,)),))


def test_launches_of_the_second_are_those_of_the_first_renamed():
    first, second = column_sum("one"), column_sum("two")
    steps = partition(Program((), (first, second), ()), lambda device: H200).steps
    alone = [*launches(first, H200), *launches(second, H200)]
    assert [s.name for s in steps] == [s.name for s in alone]
    assert [s.stores for s in steps] == [s.stores for s in alone]
