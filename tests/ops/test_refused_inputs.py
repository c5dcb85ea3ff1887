"""What an op refuses, it refuses in a jitted call, too, where nobody uses its result as well: PyTorch's own wrong inputs."""

import warnings
from types import SimpleNamespace

import pytest
import torch

import frameloom


def outcome(fn, sample):
    try:
        fn(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("part", range(4))
def test_wrong_inputs_are_refused(part):
    from torch.testing._internal.common_methods_invocations import op_db

    wrong = []
    chosen = [op for op in op_db if op.error_inputs_func is not None][part::12]
    for op in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = [e.sample_input for e in op.error_inputs("cpu")][:8]

            def unused(*args, op=op.op, **kwargs):
                op(*args, **kwargs)
                return 3

            for number, sample in enumerate(samples):
                for fn in (op.op, unused):
                    expected = outcome(fn, sample)
                    for dynamic in (None, True):
                        jitted = frameloom.jit(
                            lambda *a, fn=fn, **k: fn(*a, **k), backend="eager", dynamic=dynamic
                        )
                        found = outcome(jitted, sample)
                        if found is not expected:
                            wrong.append((op.name, number, dynamic, expected, found))
    assert not wrong


def test_a_refused_call_whose_result_is_not_used():
    def unused(x):
        torch.roll(x, 1, 5)
        return x + 1

    with pytest.raises(IndexError):
        frameloom.jit(unused)(torch.ones(3))


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("bfloat16", "float32")])
@pytest.mark.parametrize(
    "fn",
    [
        torch.nn.functional.binary_cross_entropy,
        torch.nn.functional.huber_loss,
        torch.nn.functional.mse_loss,
        lambda x, y: torch.outer(x, y).sum(),
        lambda x, y: torch.addr(torch.ones(3, 3), x, y).sum(),
    ],
    ids=["binary_cross_entropy", "huber_loss", "mse_loss", "outer", "addr"],
)
def test_targets_of_another_dtype(fn, dtypes):
    """Some kernels refuse them, or their derivatives' do."""

    def told(fn):
        x, y = (torch.full((3,), 0.25, dtype=getattr(torch, d)).requires_grad_() for d in dtypes)
        try:
            made = fn(x, y)
        except RuntimeError as error:
            return "forward", str(error)
        try:
            made.backward()
        except RuntimeError as error:
            return "backward", str(error)
        return made.dtype, x.grad.dtype, y.grad.dtype

    assert told(frameloom.jit(fn)) == told(fn)


@pytest.mark.parametrize("op", [torch.sort, torch.argmax, torch.unique])
def test_calls_are_tried_on_the_cpu_whatever_the_default_device(op):
    """A meta kernel refuses less; and on a GPU, a place that is none would end all work there."""

    def unused(x):
        op(x.to(torch.complex64))
        return x + 1

    with torch.device("meta"):
        x = torch.ones(3, device="cpu")
        wanted = outcome(unused, SimpleNamespace(input=x, args=(), kwargs={}))
        assert (
            outcome(frameloom.jit(unused), SimpleNamespace(input=x, args=(), kwargs={})) is wanted
        )
