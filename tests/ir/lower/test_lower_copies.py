"""Copies with parts replaced."""

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import check


@pytest.mark.parametrize(
    "size, stride, offset", [((2, 3), (3, 1), 4), ((3, 2), (2, 7), 1), ((4,), (5,), 0), ((), (), 7)]
)
def test_as_strided_scatter_into_an_intermediate(size, stride, offset):
    """Its offset counts from the start of the memory; intermediates share theirs."""

    def f(x, y, z):
        first = (z @ z).sin()
        return first + torch.as_strided_scatter(x * 2, y + 1, size, stride, offset).sum(), first

    check(f, torch.randn(4, 6), torch.randn(size), torch.randn(8, 8), graphs=1)
    g = lambda x, y: torch.as_strided_scatter(x, y, size, stride, offset)
    check(g, torch.randn(4, 6), torch.randn(size), graphs=1)


def test_padding_reads_what_another_kernel_computes_in_range():
    def f(x):
        y = x.exp()
        return F.pad(y, (2, 1, 1, 2), mode="replicate"), F.pad(y, (2, 1, 1, 2), mode="reflect")

    check(f, torch.randn(2, 3, 5, 6), graphs=1)


@pytest.mark.parametrize("factor", [1, 3])
def test_unshuffling_pixels_of_nothing_is_a_copy(factor):
    check(lambda x: F.pixel_unshuffle(x, factor) + 1, torch.ones(0, 1, 6, 6), graphs=1)


def test_shuffled_channels():
    x = torch.randn(2, 12, 3, 5)
    for y in (x, x.to(memory_format=torch.channels_last), x[:, :, 0]):
        check(lambda x: F.channel_shuffle(x, 3), y, graphs=1)
    check(lambda x: F.channel_shuffle(x, 3), x[:0])
