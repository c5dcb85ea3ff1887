"""Programs under a default device of their own, and compiles that begin there: what is computed for the compiler's own use lies on the CPU."""

import pytest
import torch
import torch.nn.functional as F  # noqa: F401 (in the texts)

import frameloom
from tests import fresh

MADE = [
    "torch.rand(3)", "torch.normal(0.0, 1.0, (2,))", "torch.tensor([1, 2])", "torch.as_tensor(3)", "torch.scalar_tensor(3)", "torch.Tensor(3)",
    "torch.tril_indices(2, 2)", "torch.bartlett_window(3)", "torch.nn.Parameter(torch.ones(2))", "torch.logspace(1, 2, 3)", "torch.fft.fftfreq(5)",
    "torch.eye(3)", "torch.full((2,), 1)", "torch.full((2,), 1.5, device='cpu')", "torch.empty(2).normal_()", "torch.linspace(0, 1, 5)", "torch.arange(3)",
    "torch.arange(3, device='cpu') + x", "x.to('meta')", "torch.empty_like(x, device='meta')", "torch.nn.Linear(3, 3).weight", "torch.zeros_like(x)",
    "x.new_zeros(3)", "m.sin() * 2", "m.sum(), x + 1", "torch.randperm(4, device='cpu')",
]  # fmt: skip
COMPUTED = [
    "x * 2 + torch.ones(3, device='cpu').sum()", "x + torch.tensor([1.0, 2, 3], device='cpu')", "x.quantile(0.5)", "F.dropout(x, 0.5)",
    "torch.searchsorted(x, x)", "torch.bucketize(x, x)", "torch.special.xlogy(x, 2.0)", "torch.cov(x)", "F.hardsigmoid(x)", "x.clamp(0.5)",
    "torch.where(x > 0, 1.0, x)", "F.gumbel_softmax(x)", "torch.bernoulli(x)", "x.cumsum(0)", "x.sum().item()", "x.repeat_interleave(2)", "x.topk(2)",
    "x.masked_fill(x > 0, 2.0)", "x.double() / 3", "F.one_hot(x.long(), 4)", "torch.pow(2, x)", "x.std()", "F.layer_norm(x, (3,))",
    "F.interpolate(x[None, None], 5, mode='linear')", "F.cross_entropy(x[None], torch.tensor([1], device='cpu'), label_smoothing=0.1)",
]  # fmt: skip


def seen(result):
    if isinstance(result, list | tuple):
        return [seen(r) for r in result]
    if not isinstance(result, torch.Tensor):
        return repr(result)
    values = result.tolist() if result.device.type == "cpu" and result.numel() < 10 else None
    return type(result), result.device, result.dtype, result.shape, result.stride(), values


@pytest.mark.parametrize("text", [*MADE, *COMPUTED])
def test_calls_under_a_default_device(text):
    x, m = torch.ones(3), torch.ones(3, device="meta")
    fn = eval(f"lambda x, m: ({text})")
    found = []
    with torch.device("meta"):
        for called in (fn, frameloom.jit(fn)):
            torch.manual_seed(0)
            found.append(seen(called(x.clone(), m)))
    if "Tensor(3)" in text:  # not written
        found = [f[:-1] for f in found]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "around",
    [
        "torch.device('meta')",
        "torch.inference_mode()",
        "Refusing()",
        "torch._subclasses.FakeTensorMode()",
    ],
)
def test_a_compiler_that_is_first_wanted_inside_of_a_mode(around):
    program = f"""
import torch
import torch._subclasses
from torch.utils._python_dispatch import TorchDispatchMode

class Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, op, *rest):
        raise AssertionError(op)

def fn(x):
    return F.hardsigmoid(x) * 2

import torch.nn.functional as F
x = torch.ones(3, requires_grad=True)
with {around}:
    import frameloom
    jitted = frameloom.jit(fn)
for f in (fn, jitted):
    f(x).sum().backward()
assert torch.equal(jitted(x), fn(x)) and frameloom.stats()["graphs"] == 1
"""
    fresh.run(program, check=True)
