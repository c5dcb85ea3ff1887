"""Equal blocks have equal kernels, generated and compiled once: within a compile and from one to the next."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from frameloom.runtime.build.cpp_compiler import Builder
from tests.helpers import jit_for_test

X = torch.randn(4, 8, 24)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def kernels(depth, **options):
    """The distinct texts of kernels of so many blocks, without comments.  Every other sum of two blocks is stored, so depths
    are alike that are both odd or both even."""
    model = nn.Sequential(*(Block() for _ in range(depth))).eval()
    jitted = jit_for_test(lambda x: model(x), **options)
    with torch.no_grad():
        torch.testing.assert_close(jitted(X), model(X), rtol=1e-4, atol=1e-5)
    (graph,) = jitted.explanation.graphs
    code = ("\n".join(line.partition("//")[0] for line in k.source.splitlines()) for k in graph.kernels)  # fmt: skip
    return set(code)


@pytest.mark.parametrize("options", [{}, {"options": {"freezing": True}}], ids=["", "frozen"])
def test_more_blocks_have_no_more_kernels(options):
    assert kernels(5, **options) == kernels(9, **options)


def test_another_depth_is_not_compiled_again(monkeypatch):
    kernels(5)
    monkeypatch.setattr(Builder, "_compile", lambda self, source: pytest.fail("compiled again"))
    kernels(9)
