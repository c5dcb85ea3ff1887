"""Which writes autograd counts: those of ops on lists, none through `.data`."""

import pytest
import torch

from frameloom import jit
from tests.helpers import jit_for_test

ON_LISTS = {
    "add": lambda t: torch._foreach_add_([t], 1),
    "mul": lambda t: torch._foreach_mul_([t], [t]),
    "lerp": lambda t: torch._foreach_lerp_([t], [t * 2], 0.5),
    "copy": lambda t: torch._foreach_copy_([t], [t * 2]),
    "zero": lambda t: torch._foreach_zero_([t]),
}


@pytest.mark.parametrize("name", ON_LISTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_a_derivative_needs_is_written_by_an_op_on_lists(name):
    def fn(x):
        kept = x.exp()
        made = kept * 2
        with torch.no_grad():
            ON_LISTS[name](kept)
        return made

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        jit(fn)(torch.ones(3, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_writes_through_data_of_what_library_calls_write(dtype):
    def fn(x):
        x.data.mul_(2)

    x = torch.ones(6, dtype=dtype)[::2]
    jit_for_test(fn)(x)
    assert x._version == 0
    assert torch.equal(x, torch.full((3,), 2, dtype=dtype))
