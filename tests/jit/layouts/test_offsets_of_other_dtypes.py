"""Where a view of a tensor from before the call starts counts in its own elements, which may be of another size than the tensor's."""

import pytest
import torch

from frameloom import jit

VIEWS = {
    "real": lambda x: x.view(torch.complex64).real,
    "imag": lambda x: x.view(torch.complex64).imag,
    "as real": lambda x: torch.view_as_real(x.view(torch.complex64)),
    "halves": lambda x: x.view(torch.int32),
    "bytes": lambda x: x.view(torch.int8)[..., 3:],
    "floats": lambda x: x.view(torch.float64)[..., 1:],
    "wider": lambda x: x.view(torch.complex128),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_offset(view, dtype, options):
    def fn(x):
        return view(x).storage_offset(), view(x), x + 1

    compiled = jit(fn, **options)
    memory = torch.arange(24).to(dtype)
    for start in (0, 2, 4, 8):
        for x in (memory[start : start + 6], memory[start : start + 8].view(2, 4)[:, :2]):
            (found, got, _), (wanted, expected, _) = compiled(x), fn(x)
            assert (found, got.storage_offset()) == (wanted, expected.storage_offset())
            assert torch.equal(got, expected)
