"""Graphs of CUDA tensors, captured where there is no GPU: the fakes say they are on one.

Only what is captured and lowered is looked at; nothing runs.
"""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from frameloom.capture import _capture
from frameloom.capture.graph_passes.attention_pattern import recognised
from frameloom.capture.recording import recorder as record
from frameloom.capture.shapes.registry import infer
from frameloom.capture.tensors.fake import Fake
from frameloom.ir.dtype import DType
from frameloom.ir.kernel_list import KernelList
from frameloom.ir.lower import lower
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.program import Check, Extern, Kernel, Kind
from frameloom.ir.verify import verify
from tests.capture.capturing import GraphRunner

CUDA = torch.device("cuda", 0)


class Lowering(GraphRunner):
    """Lowers and fuses each graph."""

    def compile_graph(self, graph, trail):
        graph = recognised(graph)
        program = lower(graph.graph, graph.constants)
        verify(program, blame="lower")
        self.program = fuse(program)
        verify(self.program, blame="fuse")
        return super().compile_graph(graph, trail)


@pytest.fixture(autouse=True)
def _tensors_seem_to_be_on_a_gpu(monkeypatch):
    """All inputs but those with no dimensions."""

    def fake_like(tensor):
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        return Fake(meta, CUDA if tensor.dim() else tensor.device)

    monkeypatch.setattr(record, "fake_like", fake_like)


def lowered(fn, *args):
    """The program, and per step the name of a kernel's device or of a library call."""
    runner = Lowering()
    with torch.no_grad(), contextlib.suppress(RuntimeError):  # what only a GPU can do
        _capture.JitFunction(fn, runner)(*args)
    assert not runner.breaks, runner.breaks[0].text
    steps = [
        s.device if isinstance(s, Kernel) else s.target if isinstance(s, Extern) else "check"
        for s in runner.program.steps
    ]
    for step in runner.program.steps:
        if isinstance(step, Kernel):
            assert len({b.device for b in step.buffers}) == 1, "a kernel on two devices"
    return runner.program, steps


X = torch.randn(8, 16)
NUMBER = torch.tensor(2.0)


def test_pointwise():
    assert lowered(lambda x: torch.relu(x + 1) * 2, X)[1] == ["cuda:0"]


def test_results_are_on_the_gpu():
    program, _ = lowered(lambda x, y: (x + y, x.sum(), y.t()), X, X.clone())
    assert [o.buffer.device for o in program.outputs] == ["cuda:0"] * 3


@pytest.mark.parametrize(
    "fn",
    [lambda x, n: x * n + 1, lambda x, n: n * x + 1, lambda x, n: n * x.sum() + 1],
    ids=["tensor first", "number first", "both without dimensions"],
)
def test_a_number_on_the_cpu_goes_through_the_library(fn):
    program, steps = lowered(fn, X, NUMBER)
    assert steps[-2:] == ["aten.mul.Tensor", "cuda:0"]
    assert program.outputs[0].buffer.device == "cuda:0"


def test_numbers_on_the_cpu_need_no_cpu_kernel():
    _, steps = lowered(lambda x, n: x * (n.exp() + torch.tensor(2.0)), X, NUMBER)
    assert "cpu" not in steps


def test_a_number_on_the_cpu_that_is_written():
    program, steps = lowered(lambda x, n: (x + 1, n.add_(1))[0], X, NUMBER.clone())
    assert steps.count("aten.copy_.default") == 1
    assert "cpu" not in steps


def test_copies_between_devices_are_library_calls():
    program, steps = lowered(lambda x: (x + 1).cpu(), X)
    assert steps == ["cuda:0", "aten._to_copy.default"]
    assert program.outputs[0].buffer.device == "cpu"


def test_indices_out_of_range_are_found_on_the_gpu():
    program, steps = lowered(lambda w, i: F.embedding(i, w), X, torch.tensor([1, 2]))
    assert steps == ["cuda:0", "check"]
    assert [s.buffer.device for s in program.steps if isinstance(s, Check)] == ["cuda:0"]


def test_conditions_on_data_are_waited_for():
    def f(x):
        if torch.isnan(x).any():
            raise ValueError
        return x + 1

    program, steps = lowered(f, X)
    assert steps[-2:] == ["aten._to_copy.default", "check"]
    assert [s.buffer.device for s in program.steps if isinstance(s, Check)] == ["cpu"]


def test_random_numbers_stay_in_order():
    program, steps = lowered(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), X)
    drawn = [s for s in steps if s.startswith("aten.")]
    assert drawn == ["aten.native_dropout.default", "aten.rand_like.default"]


def test_layers():
    def f(x, w, b):
        return F.gelu(F.layer_norm(F.linear(x, w, b), (16,), b, b))

    _, steps = lowered(f, torch.randn(8192, 16), torch.randn(16, 16), torch.randn(16))
    assert steps == ["aten.addmm.default", "cuda:0"]


@pytest.mark.skipif(torch.version.cuda is None, reason="asks PyTorch's CUDA libraries")
@pytest.mark.parametrize("which", ["input", "weight", "both", "neither"])
def test_convolutions_keep_channels_last(which):
    x, w = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)
    if which in ("input", "both"):
        x = x.to(memory_format=torch.channels_last)
    if which in ("weight", "both"):
        w = w.to(memory_format=torch.channels_last)
    program, _ = lowered(lambda x, w: F.conv2d(x, w), x, w)
    last = program.outputs[0].strides[1] == 1
    assert last == (which != "neither")


@pytest.mark.skipif(torch.version.cuda is None, reason="PyTorch chooses cuDNN")
@pytest.mark.parametrize("training", [True, False])
def test_batch_normalisation_by_cudnn_is_fused_like_any_other(training):
    module = torch.nn.BatchNorm2d(3).train(training)

    def f(x, mean, var, weight, bias):
        return F.relu(F.batch_norm(x, mean, var, weight, bias, training))

    given = (module.running_mean, module.running_var, module.weight.detach(), module.bias.detach())
    program, steps = lowered(f, torch.randn(2, 3, 8, 8), *given)
    assert set(steps) == {"cuda:0"}
    written = {b.name for s in program.steps for b in s.writes if b.kind is Kind.INPUT}
    assert len(written) == (2 if training else 0)


def test_statistics_of_half_precision_stay_wide():
    x = X.bfloat16()
    program, _ = lowered(lambda x: torch.native_layer_norm(x, [16], None, None, 1e-5), x)
    assert [o.buffer.dtype for o in program.outputs] == [DType.BF16, DType.F32, DType.F32]


Q = torch.randn(2, 4, 6, 8)


@pytest.mark.parametrize("q", [Q, torch.randn(2, 6, 4, 8).transpose(1, 2)], ids=["plain", "heads"])
@pytest.mark.parametrize(
    "op, args",
    [
        ("_scaled_dot_product_flash_attention", ()),
        ("_scaled_dot_product_flash_attention", (0.1, True)),
        ("_scaled_dot_product_efficient_attention", (None, True)),
        ("_scaled_dot_product_efficient_attention", (None, False)),
        ("_scaled_dot_product_cudnn_attention", (None, False)),
    ],
)
def test_attention_is_laid_out_as_its_meta_kernel_says(op, args, q):
    op = getattr(torch.ops.aten, op).default
    metas = [t.to("meta") for t in (q, Q, Q)]
    found, told = infer(op, (*metas, *args), {}), op(*metas, *args)
    assert len(found) == len(told)
    for a, b in zip(found, told):
        if isinstance(b, torch.Tensor):
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        else:
            assert a == b


def test_attention_on_the_gpu_is_one_library_call():
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    program, steps = lowered(lambda q: flash(q, q, q)[0] + 1, Q)
    assert steps == ["aten._scaled_dot_product_flash_attention.default", "cuda:0"]
    assert len(program.steps[0].results) == 9


@pytest.mark.parametrize("inference", [False, True])
def test_attention_with_dropout_is_taken_apart(inference):
    with torch.inference_mode(inference):
        _, steps = lowered(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), Q)
    assert "aten.native_dropout.default" in steps


def test_attention_under_autocast():
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        program, _ = lowered(lambda q: F.scaled_dot_product_attention(q, q, q), Q)
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", torch.float16)
    assert program.outputs[0].buffer.dtype is DType.BF16


@pytest.mark.parametrize(
    "fn, relies",
    [
        (lambda x: x + torch.zeros(16, device="cuda"), True),
        (lambda x: x + torch.zeros(16, device=torch.device("cuda")), True),
        (lambda x: x + torch.arange(16, device="cuda:0"), False),
        (lambda x: x + torch.ones(16, device=x.device), False),
        (lambda x: x.to("cuda") + 1, True),
        (lambda x: x.to(x.device) + 1, False),
    ],
)
def test_which_device_is_current_is_guarded_where_it_matters(fn, relies, monkeypatch):
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(record, "CURRENT_DEVICE", torch.get_num_threads)  # any C function
    runner = Lowering()
    with torch.no_grad(), contextlib.suppress(Exception):  # what only a GPU can do
        _capture.JitFunction(fn, runner)(X)
    if not runner.graphs:
        pytest.skip("PyTorch here has to ask a GPU")
    assert {b.device for b in runner.program.steps[-1].buffers} == {"cuda:0"}
    assert any("get_num_threads" in g for g in runner.guards) == relies, runner.guards


def test_numbers_beside_tensors_of_a_gpu_are_arguments_of_its_kernels():
    runner = Lowering()
    target = _capture.JitFunction(lambda x, a: torch.relu(x * a) + a * 2, runner)
    for a in (0.5, 0.25):
        with torch.no_grad(), contextlib.suppress(RuntimeError):
            target(X, a)
    program = runner.program
    assert [s.device for s in program.steps] == ["cuda:0"]
    assert Kind.NUMBER in {b.kind for b in program.steps[0].buffers}


def test_an_optimizer_step_is_kernels_of_the_gpu_with_numbers_of_each_tensor():
    def step(ps, gs, steps, lr):
        torch._foreach_add_(steps, 1)
        corrections = [1 - 0.9 ** s.item() for s in steps]
        torch._foreach_addcdiv_(ps, gs, gs, [-lr / c for c in corrections])

    runner = Lowering()
    target = _capture.JitFunction(step, runner)
    ps, gs = ([torch.randn(3, n) + 4 for n in (4, 5, 6, 7)] for _ in range(2))
    steps = [torch.tensor(float(k)) for k in range(4)]
    for lr in (0.1, 0.2):
        with torch.no_grad(), contextlib.suppress(RuntimeError):
            target(ps, gs, steps, lr)
    assert not runner.breaks
    program = runner.program
    assert sum(isinstance(s, KernelList) for s in program.steps) == 1
    assert not any(isinstance(s, Kernel) for s in program.steps)
    assert len(program.numbers) > 4


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", ["AdamW", "NAdam", "Adadelta"])
def test_an_optimizer_is_one_list_and_one_copy_of_its_counters(name, foreach):
    params = [torch.nn.Parameter(torch.randn(4 + k % 3, 8)) for k in range(6)]
    optimizer = getattr(torch.optim, name)(params, foreach=foreach)
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer.step()
    program, _ = lowered(lambda: optimizer.step())
    kernels = [s for s in program.steps if not isinstance(s, Extern)]
    assert [type(s) for s in kernels] == [KernelList] and len(kernels[0].instances) == len(params)
    copies = [s.target for s in program.steps if isinstance(s, Extern) and "copy_" in s.target]
    assert copies == ["aten._foreach_copy_.default"]
