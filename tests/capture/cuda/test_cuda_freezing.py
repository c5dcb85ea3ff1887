"""Freezing where tensors seem to be on a GPU: batch norms join convolutions, weights are laid out once, nothing is oneDNN's."""

import contextlib

import pytest
import torch
from torch import nn

from frameloom.capture import _capture
from frameloom.ir.lower import lower
from frameloom.ir.lower.graph_passes.batch_norm import fold_batch_norms
from frameloom.ir.lower.graph_passes.constants import Constants, evaluate
from frameloom.ir.lower.layout.onednn import OneDnn
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.program import Extern, Kernel
from frameloom.ir.verify import verify
from tests.capture.capturing import GraphRunner
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture


class Freezing(GraphRunner):
    def __init__(self):
        super().__init__()
        self.options.freezing = True

    def compile_graph(self, graph, trail):
        constants = Constants(graph.graph, graph.constants)
        evaluate(constants, graph.frozen)
        fold_batch_norms(constants)
        constants.drop_unused()
        program = lower(constants.graph, constants.holder, OneDnn(products=True, convolutions=True))
        verify(program, blame="lower")
        self.program = fuse(program)
        return super().compile_graph(graph, trail)


@pytest.fixture(autouse=True)
def _cudnn_is_there(monkeypatch):
    monkeypatch.setattr("frameloom.ir.lower.layout.channels_last._cudnn", lambda: True)


def test_a_network():
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3)
    ).eval()
    runner = Freezing()
    with torch.no_grad(), contextlib.suppress(RuntimeError):
        x = torch.randn(8, 3, 64, 64, dtype=torch.bfloat16)
        net.bfloat16()
        _capture.JitFunction(lambda x: net(x), runner)(x)
    program = runner.program
    assert len(program.inputs) == 1
    calls = [s.target for s in program.steps if isinstance(s, Extern)]
    assert calls == ["aten.convolution.default"] * 2
    copied = [s.name for s in program.steps if isinstance(s, Kernel) and "relayout" in s.name]
    assert len(copied) <= 2, copied  # the input and the result, no weight
