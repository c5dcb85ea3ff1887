"""Whether `reshape` gives a view depends on strides: code that was compiled where it copies is not for tensors where it does not."""

import pytest
import torch

from frameloom import jit

# Of each the first two dimensions can be seen as one, or not.
LAYOUTS = {
    "every second row and column": lambda: torch.arange(280.0).view(20, 14)[::2, ::2],
    "every second number": lambda: torch.arange(280.0).view(10, 14, 2)[..., 0],
    "half a row": lambda: torch.arange(48.0).view(4, 12)[:, :6],
    "whole": lambda: torch.arange(28.0).view(2, 14),
    "two rows": lambda: torch.arange(14.0).view(2, 7)[:, 1:],
    "transposed": lambda: torch.arange(24.0).view(6, 4).t(),
}
RESHAPES = {
    "flatten": lambda x: x.flatten(),
    "in two rows": lambda x: x.reshape(2, -1),
    "turned": lambda x: x.t().reshape(-1),
    "a part": lambda x: x[:, 1:].reshape(-1),
    "what is asked": lambda x: x.view(-1) if x.is_contiguous() else x.reshape(-1),
}


def refused(x):
    try:
        return x.view(-1)
    except RuntimeError:
        return None


def seen(fn, x):
    made = fn(x)
    if made is None:
        return x.tolist()
    shares = made.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    return made.tolist(), made.stride(), made._is_view(), shares, x.tolist()


@pytest.mark.parametrize("reshape", [*RESHAPES.values(), refused], ids=[*RESHAPES, "refused"])
@pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
def test_shares_memory_where_eager_does(reshape, is_written):
    def fn(x):
        made = reshape(x)
        if is_written and made is not None:
            made.mul_(2)
        return made

    layouts = list(LAYOUTS.values())
    for k, first in enumerate(layouts):
        compiled = jit(fn, dynamic=True)
        for make in [first, *layouts[k + 1 :], *layouts[:k]]:
            assert seen(compiled, make()) == seen(fn, make())


def test_what_only_copies_read_is_no_condition():
    reads = jit(lambda x: x.flatten() * 2, dynamic=True)
    for make in LAYOUTS.values():
        x = make()
        assert torch.equal(reads(x), x.flatten() * 2)


@pytest.mark.parametrize("rows", [1, 5])
def test_rows_that_data_counts(rows):
    def fn(x, n):
        x[: int(n), :2].flatten().mul_(2)

    compiled = jit(fn, dynamic=True)
    for n in (1, 2, 0, 3):
        x = torch.arange(12.0 * rows).view(rows, 3, 4)
        own = x.clone()
        compiled(x, torch.tensor(n))
        fn(own, torch.tensor(n))
        assert torch.equal(x, own)
