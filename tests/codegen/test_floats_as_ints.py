"""Floats that no int holds, as ints and back: as eager's kernels, in which the compiler may take no short cut."""

import pytest
import torch

from frameloom import jit

FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64
INTS = torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64
VALUES = torch.tensor(
    [float("nan"), float("inf"), -float("inf"), 3e9, -3e9, 1e19, -1e19, -0.5, -0.0, 2.7, 300.0]
)


def there_and_back(x):
    return [x.to(of).to(to) for of in INTS for to in FLOATS]


@pytest.mark.parametrize("n", [1, 19])
@pytest.mark.parametrize("dtype", FLOATS)
def test_there_and_back(dtype, n):
    compiled = jit(there_and_back)
    for value in VALUES:
        x = value.to(dtype).expand(n).contiguous()
        for got, want in zip(compiled(x), there_and_back(x), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(got.signbit(), want.signbit())
