"""`torch.compiler.set_stance`: which calls run compiled code, and which may compile."""

import pytest
import torch

from frameloom import graph_break, jit
from frameloom.errors import RecompileError

X, LONGER = torch.zeros(3), torch.zeros(5)
set_stance = torch.compiler.set_stance


def told(x):
    return x + 1 if torch.compiler.is_compiling() else x - 1


def as_compiled(result):
    return result.eq(1).all().item()


@pytest.fixture(autouse=True)
def the_default_afterwards():
    yield
    set_stance("default")


def test_force_eager_runs_no_compiled_code():
    jitted = jit(told)
    with set_stance("force_eager"):
        assert not as_compiled(jitted(X))
    assert not jitted.entries
    assert as_compiled(jitted(X))
    with set_stance("force_eager"):
        assert not as_compiled(jitted(X))
    assert as_compiled(jitted(X))
    assert len(jitted.entries) == 1


def test_as_a_function_and_as_a_decorator():
    jitted = jit(told)
    assert as_compiled(jitted(X))
    set_stance("force_eager")
    assert not as_compiled(jitted(X))
    set_stance("default")
    assert as_compiled(jitted(X))
    assert not as_compiled(set_stance("force_eager")(lambda: jitted(X))())
    assert as_compiled(jitted(X))


def test_an_error_inside_leaves_the_stance():
    jitted = jit(told)
    with pytest.raises(ZeroDivisionError), set_stance("force_eager"):
        assert not as_compiled(jitted(X))
        raise ZeroDivisionError
    assert as_compiled(jitted(X))


def test_eager_on_recompile():
    jitted = jit(told)
    with set_stance("eager_on_recompile"):
        assert not as_compiled(jitted(X))
    jitted(X)
    with set_stance("eager_on_recompile"):
        assert as_compiled(jitted(X))
        assert not as_compiled(jitted(LONGER))
        assert as_compiled(jitted(X))
    assert len(jitted.entries) == 1


def test_fail_on_recompile():
    jitted = jit(told)
    with set_stance("fail_on_recompile"), pytest.raises(RecompileError, match="told"):
        jitted(X)
    jitted(X)
    with set_stance("fail_on_recompile"):
        assert as_compiled(jitted(X))
        with pytest.raises(RuntimeError, match="x: expected"):
            jitted(LONGER)
    assert as_compiled(jitted(LONGER))


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_call_runs_plainly(stance):
    jitted = jit(told)
    with set_stance(stance):
        assert not as_compiled(jitted(X))
        assert as_compiled(jitted(X))
        assert as_compiled(jitted(LONGER))


def test_modules_and_pieces_after_a_break():
    def broken(x):
        y = told(x)
        graph_break()
        return y, told(x)

    class Net(torch.nn.Module):
        def forward(self, x):
            return told(x)

    module, jitted = jit(Net()), jit(broken)
    for _ in range(2):
        assert as_compiled(module(X)) and all(map(as_compiled, jitted(X)))
        with set_stance("force_eager"):
            assert not as_compiled(module(X)) and not any(map(as_compiled, jitted(X)))


def test_a_stance_that_the_function_sets():
    inner = jit(told)

    def outer(x):
        with set_stance("force_eager"):
            y = inner(x)
        return y, inner(x)

    first, second = jit(outer)(X)
    assert (as_compiled(first), as_compiled(second)) == (False, True)
