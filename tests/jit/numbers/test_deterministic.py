"""With deterministic algorithms, memory that nobody has written to is filled."""

import pytest
import torch

import frameloom


@pytest.fixture
def restored():
    fills = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fills


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.uint8, torch.bool, torch.complex64, torch.bfloat16])  # fmt: skip
def test_fresh_memory(restored, dtype):
    def program(x):
        made = (
            torch.empty(3, dtype=dtype),
            torch.empty_like(x),
            x.new_empty(2),
            x.new_empty_strided((2, 2), (1, 2)),
            torch.empty_strided((2,), (1,), dtype=dtype),
        )
        return made, x + x

    fn, x = frameloom.jit(program), torch.ones(2, 3).to(dtype)
    for deterministic, fills in ((True, True), (False, True), (True, True), (True, False)):
        torch.use_deterministic_algorithms(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = fills
        wanted, found = program(x), fn(x)
        assert torch.equal(found[1], wanted[1])
        for a, b in zip(found[0], wanted[0], strict=True):
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            if deterministic and fills:
                assert torch.equal(a.isnan(), b.isnan())
                assert torch.equal(a.nan_to_num(), b.nan_to_num())
