"""The program's function modes and dispatch modes: what they see of a jitted call, around it and inside."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from frameloom import jit
from tests.fresh import run
from tests.watching_modes import Functions, Ops

X = torch.arange(12.0).reshape(3, 4)


def layer():
    torch.manual_seed(0)
    linear = torch.nn.Linear(4, 4)
    return linear, lambda x: linear(x).sin().sum()


@pytest.mark.parametrize("mode", [Functions, Ops])
@pytest.mark.parametrize("calls_before", [0, 2])
def test_a_training_step_in_a_mode(mode, calls_before):
    linear, fn = layer()
    compiled = jit(fn)
    for _ in range(calls_before):
        compiled(X)
    for _ in range(2):
        seen = []
        for side in (compiled, fn):
            linear.zero_grad()
            with mode() as active:
                side(X).backward()
            seen.append(active.seen)
        assert seen[0] == seen[1]


@pytest.mark.parametrize("calls_before", [0, 2])
def test_operations_are_counted(calls_before):
    linear, fn = layer()
    compiled = jit(fn)
    for _ in range(calls_before):
        compiled(X)
    totals = []
    for side in (compiled, fn):
        linear.zero_grad()
        with FlopCounterMode(display=False) as counter:
            side(X).backward()
        totals.append(counter.get_total_flops())
    assert totals[0] == totals[1] > 0


@pytest.mark.parametrize("mode", [Functions, Ops])
def test_a_mode_inside(mode):
    part = jit(lambda x: x.cos() * 2)

    def fn(x):
        y = x * 3
        with mode() as active:
            z = part(y).exp()
        return y + z, active.seen

    def raises(x):
        try:
            with mode() as active:
                x.sin()
                raise ValueError
        except ValueError:
            return x + 1, active.seen

    for one in (fn, raises):
        compiled = jit(one)
        for _ in range(2):
            (got, seen), (want, wanted) = compiled(X), one(X)
            torch.testing.assert_close(got, want)
            assert seen == wanted
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


def test_counted_inside():
    def fn(x):
        with FlopCounterMode(display=False) as counter:
            y = x @ x.T
        return y + 1, counter.get_total_flops()

    compiled = jit(fn)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), fn(X))


@pytest.mark.parametrize("mode", ["watching", "device"])
def test_a_mode_sees_nothing_of_the_import_of_the_compiler(mode):
    """`torch.device` is a function mode, too: what the import tries out would be made there."""
    program = """
import torch, frameloom
from tests.watching_modes import Functions
with (Functions() if MODE == "watching" else torch.device("meta")) as active:
    compiled = frameloom.jit(lambda x: x + 1)
if MODE == "watching":
    assert active.seen == [], active.seen
assert compiled(torch.ones(2)).equal(torch.full((2,), 2.0))
"""
    run(program.replace("MODE", repr(mode)), check=True)
