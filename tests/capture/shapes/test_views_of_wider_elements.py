"""Views whose elements are several of the tensor's: PyTorch asks where the tensor starts in its storage, which may differ from call to call."""

import pytest
import torch

import frameloom
from tests.helpers import check

VIEWS = {
    "wider": lambda t: t.view(torch.int32),
    "named": lambda t: t.view(dtype=torch.int32),
    "twice": lambda t: t.view(torch.int32).view(torch.int64),
    "there_and_back": lambda t: t.view(torch.int8).view(torch.int32),
    "narrower": lambda t: t.view(torch.int8),
    "of_a_part": lambda t: t[4:].view(torch.int32),
    "complex": lambda t: torch.view_as_complex(t.view(-1, 2)),
    "shape": lambda t: t.view(-1, 2),
}


def memory_for(name):
    return torch.zeros(64, dtype=torch.float32 if name == "complex" else torch.float16)


@pytest.mark.parametrize("name", VIEWS)
def test_start_in_the_storage(name):
    def f(x):
        y = VIEWS[name](x)
        return y.shape, y + 1

    for start in (0, 1, 2, 4):
        check(f, memory_for(name)[start : start + 8])


@pytest.mark.parametrize("name", ["wider", "there_and_back", "complex"])
def test_next_call_starts_elsewhere(name):
    def f(x):
        VIEWS[name](x)
        return x + 1

    memory, compiled = memory_for(name), frameloom.jit(f)
    for start in (0, 8, 16):
        compiled(memory[start : start + 8])
    assert len(compiled.entries) == 1
    with pytest.raises(RuntimeError, match="divisible by"):
        compiled(memory[1:9])


@pytest.mark.parametrize("name", ["wider", "narrower", "complex"])
def test_writes_to_a_view_of_an_input_are_counted(name):
    x = memory_for(name)
    y = frameloom.jit(VIEWS[name])(x)
    y.fill_(1)
    assert x._version == 1
    assert (
        frameloom.jit(lambda x: VIEWS[name](x[8:]))(x).data_ptr() == VIEWS[name](x[8:]).data_ptr()
    )


def test_views_of_a_leaf_made_without_gradients():
    x = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    with torch.no_grad():
        assert (
            frameloom.jit(lambda x: torch.view_as_real(x))(x).requires_grad
            is torch.view_as_real(x).requires_grad
        )
