"""FRAMELOOM_VERIFY=1: first calls of compiled graphs are compared with the loop IR's interpreter."""

import dataclasses

import pytest
import torch

import frameloom
from frameloom import VerifyError, pipeline
from frameloom.backend import checked
from frameloom.backend.nearly import near
from frameloom.backend.reference import NotInterpreted
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Kernel
from frameloom.ir.substitute import transform
from frameloom.runtime import _runtime

pytestmark = pytest.mark.compiled


@pytest.fixture(autouse=True)
def verifying(monkeypatch):
    monkeypatch.setattr(pipeline, "config", dataclasses.replace(pipeline.config, verify="all"))
    frameloom.reset()


def plant(monkeypatch, wrong):
    """A mistake behind the lowering: `wrong` gives another node for a node, or None."""

    def mistaken(program):
        steps = []
        for step in program.steps:
            if isinstance(step, Kernel):
                values = transform([s.value for s in step.stores], wrong)
                stores = [dataclasses.replace(s, value=v) for s, v in zip(step.stores, values)]
                step = dataclasses.replace(step, stores=tuple(stores))
            steps.append(step)
        return dataclasses.replace(program, steps=tuple(steps))

    stages = (*pipeline.PROGRAM_STAGES, ("mistaken", mistaken, "mistaken.txt"))
    monkeypatch.setattr(pipeline, "PROGRAM_STAGES", stages)


def instead(op, other):
    return lambda n: Node(other, n.dtype, n.srcs, n.arg) if n.op is op else None


def verified():
    stats = frameloom.stats()
    return stats.get("verified", 0), stats.get("not verified", 0)


def test_a_wrong_kernel_is_caught(monkeypatch):
    plant(monkeypatch, instead(Op.MUL, Op.ADD))
    f = frameloom.jit(lambda x: (x * 2).exp())
    with pytest.raises(VerifyError, match=r"(?s)output 0 .*float32\[4\]: 4 of 4 .*FRAMELOOM_DEBUG"):
        f(torch.randn(4))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bfloat16, torch.float64])
def test_a_wrong_kernel_of_any_dtype_is_caught(monkeypatch, dtype):
    plant(monkeypatch, instead(Op.LT, Op.LE))
    x = torch.tensor([1, 2, 3]).to(dtype)
    with pytest.raises(VerifyError):
        frameloom.jit(lambda x, y: torch.where(x < y, x, torch.zeros_like(x)))(x, x)


def test_a_wrong_write_to_an_input_is_caught(monkeypatch):
    plant(monkeypatch, instead(Op.MUL, Op.ADD))

    @frameloom.jit
    def f(x):
        x.mul_(3.0)

    with pytest.raises(VerifyError, match="input 0 behind the call"):
        f(torch.randn(4))


def test_a_wrong_backward_pass_is_caught(monkeypatch):
    x = torch.randn(4, requires_grad=True)
    y = frameloom.jit(lambda x: x.sigmoid().sum())(x)
    plant(monkeypatch, instead(Op.MUL, Op.ADD))
    with pytest.raises(VerifyError, match=r"backward: .*output 0"):
        y.backward()


def test_a_kernel_that_is_wrong_for_other_sizes_is_caught(monkeypatch):
    plant(monkeypatch, lambda n: Node(Op.CONST, n.dtype, (), n.arg.hint) if hasattr(n.arg, "hint") else None)  # fmt: skip
    f = frameloom.jit(lambda x: x * torch.arange(x.shape[0]).flip(0), dynamic=True)
    f(torch.ones(4))
    with pytest.raises(VerifyError):
        f(torch.ones(5))


def test_nan_in_another_place_is_caught(monkeypatch):
    plant(monkeypatch, instead(Op.LOG, Op.SQRT))
    with pytest.raises(VerifyError):
        frameloom.jit(lambda x: x.log())(torch.tensor([0.0]))


def test_right_graphs_pass():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    f = frameloom.jit(lambda x: model(x).softmax(-1).amax())
    f(torch.randn(3, 4)).backward()
    assert verified() == (2, 0)


def test_sizes_that_vary_are_looked_at_again():
    f = frameloom.jit(lambda x: x[x > 0].cumsum(0) / x.shape[0], dynamic=True)
    for n in range(2, 10):
        f(torch.randn(n))
    assert verified() == (4, 0)


def test_what_rounding_decides_passes():
    x = torch.randn(1000)

    def f(x):
        y = x - x.mean()
        return y.sum(), (y.sum() > 0), (x.half() * 3).exp().half() - 1, (x.sin() * 1e6).floor()

    frameloom.jit(f)(x)
    assert verified() == (1, 0)


def test_a_size_that_rounding_decides_passes():
    class Call:
        rounds = False

        def run(self, noise=None):
            return [torch.ones(3 if noise is None else 4)], []

    with pytest.raises(NotInterpreted):
        checked.difference(Call(), [torch.zeros(3)], None)


def test_the_check_changes_nothing():
    def shares(x, view):
        return x * 2 + torch.rand_like(x), torch.empty(3), x.view(-1), view.sum()

    def writes(x, sums):
        sums.add_(x.sum(0))
        return sums.view(-1)

    def run(shares, writes):
        torch.manual_seed(3)
        x, sums = torch.arange(12.0).view(3, 4), torch.zeros(8)[::2]
        made = shares(x, x[1:, ::2])
        same = made[2].data_ptr() == x.data_ptr(), writes(x, sums).data_ptr() == sums.data_ptr()
        return x, x._version, sums, sums._version, made[0], made[3], same, torch.rand(2)

    jitted = run(frameloom.jit(shares), frameloom.jit(writes))
    for got, want in zip(jitted, run(shares, writes), strict=True):
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
    assert verified() == (2, 0)


def test_what_cannot_be_interpreted_is_counted():
    calls = []
    with torch.library._scoped_library("checked_test", "FRAGMENT") as library:
        library.define("told(Tensor x) -> Tensor")
        library.impl("told", lambda x: calls.append(1) or x.clone(), "CPU")
        library.impl("told", torch.empty_like, "Meta")
        f = frameloom.jit(lambda x: torch.ops.checked_test.told(x) + 1)
        f(torch.ones(2))
    assert calls == [1] and verified() == (0, 1)


@pytest.mark.parametrize("level", ["", "structure", "all"])
def test_nothing_is_around_a_plan_otherwise(monkeypatch, level):
    monkeypatch.setattr(pipeline, "config", dataclasses.replace(pipeline.config, verify=level))
    f = frameloom.jit(lambda x: x.add_(1))
    f(torch.ones(2))
    assert (type(f.entries[0].target) is _runtime.Plan) is (level != "all")
    assert verified() == (int(level == "all"), 0)


def test_another_default_device_is_none_of_its_business():
    x = torch.randn(4)
    f = frameloom.jit(lambda x: (x * 2 + 1).sum(), dynamic=True)
    torch.set_default_device("meta")
    try:
        found = f(x)
    finally:
        torch.set_default_device(None)
    torch.testing.assert_close(found, (x * 2 + 1).sum())
    assert verified() == (1, 0)


def test_the_sign_of_a_computed_nan_is_anything(monkeypatch):
    def negated(n):
        return Node(Op.NEG, n.dtype, (n,)) if n.op is Op.SQRT and n.dtype.is_float else None

    plant(monkeypatch, negated)
    f = frameloom.jit(lambda x: x.sqrt().view(torch.int32))
    f(torch.full((20,), -1.0))
    with pytest.raises(VerifyError):
        frameloom.jit(lambda x: x.sqrt().view(torch.int32))(torch.ones(20))
    assert verified() == (2, 0)


WIDE = (torch.float32, torch.float64, torch.bfloat16)


@pytest.mark.parametrize("dtype", [*WIDE, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_below_the_smallest_normal_one(dtype):
    """Kernels of PyTorch make 0 of some of them; those of narrow dtypes are in use."""
    got = torch.tensor([torch.finfo(dtype).tiny / 2, 0.0], dtype=torch.float64).to(dtype)
    assert bool(near(got, torch.zeros_like(got)).all()) == (dtype in WIDE)
