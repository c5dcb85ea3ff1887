"""`fullgraph=True` says that nothing runs as plain Python: what cannot be compiled raises, with the reason."""

import sys

import pytest
import torch

from frameloom import FullGraphError, jit

X = torch.arange(3.0)


def generator(x):
    yield x + 1


async def coroutine(x):
    return x + 1


async def asynchronous_generator(x):
    yield x + 1


def reads_its_frame(x):
    return locals()["x"] + 1


def looks_at_frames(x):
    return x + sys._getframe().f_lineno


LEFT = {
    generator: "is a generator or coroutine",
    coroutine: "is a generator or coroutine",
    asynchronous_generator: "is a generator or coroutine",
    reads_its_frame: "may look at its own frame (locals)",
    looks_at_frames: "may look at its own frame (_getframe)",
}


@pytest.mark.parametrize("fn", LEFT, ids=lambda fn: fn.__name__)
def test_the_reason_is_raised_by_each_call(fn):
    jitted = jit(fn, fullgraph=True, backend="eager")
    for _ in range(2):
        with pytest.raises(FullGraphError) as info:
            jitted(X)
        assert fn.__name__ in str(info.value) and LEFT[fn] in str(info.value)


@pytest.mark.parametrize("fn", LEFT, ids=lambda fn: fn.__name__)
def test_they_run_without_it(fn):
    jit(fn, backend="eager")(X)


def test_an_operator_without_derivative():
    with torch.library._scoped_library("frameloom_fullgraph", "DEF"):

        @torch.library.custom_op("frameloom_fullgraph::sine", mutates_args=())
        def sine(x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        sine.register_fake(torch.empty_like)
        fn = jit(lambda x: sine(x * 2) + 1, fullgraph=True, backend="eager")
        assert torch.equal(fn(X), (X * 2).sin() + 1)
        with pytest.raises(FullGraphError):
            fn(X.clone().requires_grad_())
        with torch.no_grad():
            assert torch.equal(fn(X.clone().requires_grad_()), (X * 2).sin() + 1)


def nothing(x):
    return [x, len(x)]


def test_what_has_no_tensor_work_is_no_failure():
    assert jit(nothing, fullgraph=True)(X)[0] is X


def test_generators_that_a_compiled_function_drives_are_captured():
    jitted = jit(lambda x: sum(generator(x)), fullgraph=True, backend="eager")
    assert torch.equal(jitted(X), X + 1)
