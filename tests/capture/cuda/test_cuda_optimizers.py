"""PyTorch's fused optimizers on a GPU where there is none: captured on fakes that say they are on one, compiled, and run by interpreters."""

import pytest
import torch

import frameloom
from frameloom import jit
from frameloom.capture.recording import recorder as record
from frameloom.capture.tensors.fake import Fake
from frameloom.ir.kernel_list import KernelList
from frameloom.ir.ops import Op
from frameloom.ir.substitute import topological
from tests.codegen.interpreted_gpu import GPU, on_a_gpu

pytest.importorskip("triton")
SHAPES = [(3, 40), (5,), (2, 2, 64), (600,), ()]
OPTIONS = [
    ("AdamW", {}), ("AdamW", {"amsgrad": True, "maximize": True}), ("Adam", {"weight_decay": 0.1}), ("SGD", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "dampening": 0.0}), ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.01}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _tensors_seem_to_be_on_a_gpu(monkeypatch):
    def fake_like(tensor):
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        return Fake(meta, GPU, tensor.requires_grad)

    monkeypatch.setattr(record, "fake_like", fake_like)


def optimizer(name, options, dtype=torch.float32):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(s).to(dtype)) for s in SHAPES]
    made = getattr(torch.optim, name)(parameters, lr=0.1, fused=True, **options)
    fill(parameters)
    made.step()  # which makes its tensors
    return parameters, made


def fill(parameters):
    for p in parameters:
        p.grad = torch.randn(p.shape).to(p.dtype)


def steps(parameters, step, made, count=3):
    torch.manual_seed(1)
    for k in range(count):
        fill(parameters)
        made.param_groups[0]["lr"] = 0.1 / (k + 1)
        step()


@pytest.mark.parametrize("name, options", OPTIONS)
def test_a_fused_step_is_what_the_kernel_of_the_cpu_computes(name, options):
    frameloom.reset()
    mine, own = optimizer(name, options)
    theirs, plain = optimizer(name, options)
    with on_a_gpu():
        steps(mine, jit(own.step), own)
    steps(theirs, plain.step, plain)
    assert frameloom.stats()["breaks"] == 0
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    for p, w in zip(mine, theirs, strict=True):
        for key, value in plain.state[w].items():
            torch.testing.assert_close(own.state[p][key], value, rtol=1e-5, atol=1e-6)


def test_what_the_count_of_steps_decides_is_computed_once_for_a_tensor():
    parameters, made = optimizer("AdamW", {})
    frameloom.reset()
    explained = frameloom.explain(made.step)
    with on_a_gpu():
        fill(parameters)
        found = explained()
    (graph,) = found.graphs
    kernels = graph.fused.launches
    slow = [
        k
        for k in kernels
        if any(n.op is Op.POW for n in topological([s.value for s in k.kernels[0].stores]))
    ]
    assert slow
    for kernel in slow:
        extents = [row.extent for row in kernel.instances] if isinstance(kernel, KernelList) else []
        assert max(extents, default=1) == 1
        assert isinstance(kernel, KernelList) or not any(s.axes for s in kernel.stores)
