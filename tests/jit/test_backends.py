"""From a captured graph of CUDA tensors to the plan, without a GPU: what goes to which generator, and what the plan is made of."""

from types import SimpleNamespace

import pytest
import torch

from frameloom.backend import gpu_sources
from frameloom.backend import targets as backends
from frameloom.capture import _capture
from frameloom.codegen.triton.launch import LaunchEntry, LaunchSource
from frameloom.debug import Trail
from frameloom.options import Options
from frameloom.pipeline import compile_graph
from frameloom.runtime.spec import CheckCall, ExternCall, KernelCall, LaunchCall
from tests.capture.capturing import GraphRunner
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu
from tests.runtime.pretend_cuda import gpu, needs_no_cuda

__all__ = ["_tensors_seem_to_be_on_a_gpu", "gpu"]  # fixtures
pytest.importorskip("triton")
pytestmark = [needs_no_cuda, pytest.mark.compiled]


def parameters(count):
    return ", ".join(f"p{i}" for i in range(count))


class Generator:
    """Stands in for the generator of Triton code: kernels with the right parameters that do nothing."""

    def __init__(self):
        self.asked = []

    def __call__(self, kernels, chip, checks, begin=None):
        self.asked.append((kernels, chip, checks))
        made = []
        for number, kernel in enumerate(kernels):
            buffers = tuple(kernel.buffers)
            text = (
                "import triton\nimport triton.language as tl\n\n@triton.jit\n"
                f"def kernel{number}({parameters(len(buffers))}):\n    tl.store(p0, tl.load(p0))\n"
            )
            kinds = ("*fp32",) * len(buffers)
            entry = LaunchEntry(kernel.name, buffers, 100, text)
            made.append(
                LaunchSource(text, f"kernel{number}", kinds, (3, 2, 1), 4, entries=(entry,))
            )
        return made


@pytest.fixture
def generator(monkeypatch, gpu):
    stand_in = Generator()
    monkeypatch.setattr(gpu_sources, "generate", stand_in)
    return stand_in


class Compiling(GraphRunner):
    def compile_graph(self, graph, trail):
        self.plan, self.report = compile_graph(graph, Options(), Trail("test"))
        return super().compile_graph(graph, trail)


def compiled(fn, *args):
    runner = Compiling()
    with torch.no_grad():
        _capture.JitFunction(fn, runner)(*args)
    return runner.plan.spec, runner.report


X = torch.randn(8, 16)


def kinds(spec):
    return [type(s) for s in spec.steps]


def test_kernels_on_the_gpu_are_launched(generator):
    spec, report = compiled(lambda x: torch.relu(x + 1) * 2, X)
    (call,) = spec.steps
    assert isinstance(call, LaunchCall)
    assert (call.grid, call.name) == ((3, 2, 1), report.kernels[0].name)
    assert {spec.buffers[b].kind for b in call.buffers} == {"input", "output"}
    assert {str(spec.buffers[b].device) for b in call.buffers} == {"cuda:0"}
    assert report.kernels[0].source.startswith("import triton")


def test_the_other_function_is_compiled_when_wanted(generator):
    spec, _ = compiled(lambda x: x + 1, X)
    (call,) = spec.steps
    first = call.unaligned()
    assert first not in (0, call.function)
    assert call.unaligned() == first


def test_the_generator_is_told_of_the_chip_and_the_checks(generator):
    weights, indices = torch.randn(10, 4), torch.tensor([1, 2])
    spec, _ = compiled(lambda w, i: torch.nn.functional.embedding(i, w), weights, indices)
    ((kernels, chip, checks),) = generator.asked
    assert chip.arch == 90
    assert {b.device for b in checks} == {"cuda:0"}
    assert checks < {s.buffer for k in kernels for s in k.stores}
    assert set(kinds(spec)) == {LaunchCall}  # nothing waits for the flag


def test_a_condition_on_data_is_waited_for(generator):
    def f(x):
        if torch.isnan(x).any():
            raise ValueError
        return x + 1

    spec, _ = compiled(f, X)
    assert kinds(spec)[-2:] == [ExternCall, CheckCall]
    assert not generator.asked[0][2] & {s.buffer for k in generator.asked[0][0] for s in k.stores}


@pytest.mark.parametrize("size, kind", [(480, "arena"), (512, "transient")])
def test_scratch_memory_on_the_gpu(generator, size, kind):
    x = torch.randn(size, size)  # large enough for the library
    spec, _ = compiled(lambda x, w: torch.relu((x + 1) @ w) + 1, x, x)
    assert kinds(spec) == [LaunchCall, ExternCall, LaunchCall]
    scratch = [b for b in spec.buffers if b.kind == kind]
    assert {str(b.device) for b in scratch} == {"cuda:0"}


def test_a_program_on_the_cpu_asks_nobody_about_gpus(generator, monkeypatch):
    from frameloom.capture.tensors.fake import fake_like
    from tests.capture.cuda.test_cuda_graphs import record

    monkeypatch.setattr(record, "fake_like", fake_like)
    spec, _ = compiled(lambda x: x + 1, X)
    assert kinds(spec) == [KernelCall]
    assert not generator.asked


def test_texts_are_dumped_one_file_a_kernel():
    sources = [SimpleNamespace(text=t, grid=(1, 1, 1), warps=4, stages=1) for t in "ab"]
    texts = backends.Texts((), [("cuda:0", sources)])
    assert [name for name, _ in texts.readable()] == ["output_code_0.py", "output_code_1.py"]
