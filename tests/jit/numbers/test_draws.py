"""The comparison of PyTorch's draws with ours, where a model of them stands for a GPU."""

import pytest
import torch

from frameloom.backend import draws
from frameloom.ir import philox

BLOCKS = 2


class Device:
    """Draws as PyTorch does on a GPU, or, with `wrong`, in another way."""

    def __init__(self, wrong=""):
        self.seed, self.offset, self.wrong = 5, 40, wrong
        self.as_it_is = philox.Generator(BLOCKS, ((4, 4), (2, 8), (8, 2)))

    def initial_seed(self):
        return self.seed

    def get_offset(self):
        return self.offset

    def set_offset(self, offset):
        self.offset = offset

    def manual_seed(self, seed):
        self.seed, self.offset = seed, 0

    def numbers(self, count, stream):
        seed, offset = torch.tensor(self.seed), torch.tensor(self.offset)
        self.offset += self.as_it_is.increment(count) + 4 * (self.wrong == "offset")
        return philox.uniform(philox.words(seed, offset, torch.arange(count), stream))

    def native_dropout(self, x, rate, train):
        dense = x.is_contiguous()
        alignment = 32 if x.storage_offset() == 0 else x.storage_offset() * x.itemsize
        stream = self.as_it_is.of_dropout(x.numel(), x.itemsize, alignment if dense else 0)
        if self.wrong == "dropout":
            stream = philox.Stream(stream.threads, 1)
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        kept = torch.tensor(1 - rate, dtype=wide)
        mask = self.numbers(x.numel(), stream).reshape(x.shape).to(wide) < kept
        return (x.to(wide) * mask.to(wide) * (1 / kept.double()).to(wide)).to(x.dtype), mask

    def fill(self, count):
        numbers = self.numbers(count, self.as_it_is.scattered(count))
        return 1 - numbers if self.wrong == "rand" else numbers

    def rand(self, count, dtype, device):
        value = self.fill(count).to(dtype)
        return torch.where(value == 1, torch.zeros_like(value), value)

    def filled(self, name, arguments, dtype, device, count):
        if name == "bernoulli_":
            return (self.fill(count).double() < arguments[0]).to(dtype)
        value = (self.fill(count) * 2 - 1).to(dtype)
        return torch.where(value == 1, torch.full_like(value, -1), value)


@pytest.fixture
def compared(monkeypatch):
    def run(wrong=""):
        device = Device(wrong)
        monkeypatch.setattr(torch, "native_dropout", device.native_dropout)
        monkeypatch.setattr(torch, "rand", device.rand)
        monkeypatch.setattr(draws, "_filled", device.filled)
        comparison = draws.Comparison.__new__(draws.Comparison)
        comparison.device, comparison.default, comparison.blocks = (
            torch.device("cpu"),
            device,
            BLOCKS,
        )
        monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
        try:
            return comparison.generator()
        finally:
            assert (device.seed, device.offset) == (5, 40)

    return run


def test_how_pytorch_draws_is_found_out(compared):
    found = compared()
    assert found == philox.Generator(BLOCKS, found.widest)
    assert dict(found.widest) == {4: 4, 2: 8, 8: 2}


@pytest.mark.parametrize("wrong", ["offset", "rand"])
def test_what_differs_is_noticed(compared, wrong):
    with pytest.raises(draws.Differs):
        compared(wrong)


def test_another_width_is_taken_over(compared):
    assert set(dict(compared("dropout").widest).values()) == {1}
