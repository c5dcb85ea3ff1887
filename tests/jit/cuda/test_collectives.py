"""Ops by which processes talk to each other: all of them are made, in the program's order."""

import pytest
import torch
import torch.distributed as dist

import frameloom
from frameloom.ir.library import effects

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.distributed_c10d._get_default_group().group_name
    dist.destroy_process_group()


def test_what_nobody_reads_is_sent(group):
    ops = torch.ops._c10d_functional

    def fn(x):
        ops.wait_tensor(ops.all_reduce(x * 2, "sum", group))
        return ops.wait_tensor(ops.all_reduce(x + 1, "sum", group)) * 2

    x = torch.ones(3)
    assert torch.equal(frameloom.jit(fn)(x), fn(x))
    (graph,) = frameloom.explain(fn)(x).graphs
    names = [name.split(".")[1] for name in graph.library_calls]
    assert names == ["all_reduce", "wait_tensor"] * 2


def test_they_have_effects():
    for name in ("all_reduce", "wait_tensor", "all_gather_into_tensor", "reduce_scatter_tensor"):
        assert effects(f"_c10d_functional.{name}.default").beyond_results
    assert not effects("aten.mm.default").beyond_results
