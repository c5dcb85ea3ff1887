"""`frameloom.compile` takes the arguments of `torch.compile`."""

import inspect
import warnings

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import frameloom
from frameloom import OptionError, torch_compile
from frameloom.options import check_options


def double(x):
    return x * 2


def test_it_has_the_signature_of_torch_compile():
    ours, theirs = (inspect.signature(f).parameters for f in (frameloom.compile, torch.compile))
    assert {n: p.kind for n, p in ours.items()} == {
        n: p.kind for n, p in theirs.items() if n in ours
    }
    assert theirs.keys() - ours.keys() <= {
        "recompile_limit",
        "isolate_recompiles",
        "name",
        "shapes_spec",
    }


@pytest.mark.parametrize("given", [
    {}, {"fullgraph": True}, {"dynamic": True}, {"backend": "inductor"}, {"backend": "frameloom"}, {"backend": "aot_eager"},
    {"mode": "max-autotune"}, {"options": {"freezing": True}}, {"backend": lambda gm, inputs: gm.forward},
])  # fmt: skip
def test_functions(given):
    x = torch.ones(3)
    assert torch.equal(frameloom.compile(double, **given)(x), x * 2)
    assert torch.equal(frameloom.compile(**given)(double)(x), x * 2)


def test_a_backend_that_the_program_has_registered():
    graphs = []

    @torch._dynamo.register_backend
    def of_this_test(gm, inputs):
        graphs.append(gm)
        return gm.forward

    x = torch.ones(3)
    assert torch.equal(frameloom.compile(double, backend="of_this_test")(x), x * 2)
    assert len(graphs) == 1
    with pytest.raises(OptionError, match="of_no_test"):
        frameloom.compile(double, backend="of_no_test")


def test_a_function_of_pytorch_that_only_calls_are_known_of():
    x = torch.arange(5.0)
    totals = frameloom.compile(associative_scan, fullgraph=True)(
        torch.add, x, 0, combine_mode="generic"
    )
    assert torch.equal(totals, x.cumsum(0))


def test_modules_are_compiled_in_place():
    model = torch.nn.Linear(3, 3)
    assert frameloom.compile(model) is model
    assert frameloom.compile(model, disable=True) is model
    assert frameloom.compile(disable=True)(double) is double


def test_options_of_another_compiler_have_no_effect_and_a_notice():
    with pytest.warns(RuntimeWarning, match="epilogue_fusion"):
        frameloom.compile(double, options={"epilogue_fusion": True})


@pytest.mark.parametrize(("options", "mode"), [
    ({"triton.cudagraphs": True}, "reduce-overhead"), ({"max_autotune": True}, "max-autotune-no-cudagraphs"),
    ({"triton.cudagraphs": True, "max_autotune": True}, "max-autotune"), ({"triton.cudagraphs": False}, "default"),
])  # fmt: skip
def test_options_that_stand_for_a_mode(options, mode, monkeypatch):
    monkeypatch.setattr(torch_compile, "jit", lambda fn, **given: check_options(**given).mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert frameloom.compile(double, options=options) == mode


@pytest.mark.parametrize(
    "given", [{"backend": "tvm"}, {"mode": "fast"}, {"options": 3}, {"fullgraph": 1}]
)
def test_what_it_refuses(given):
    with pytest.raises(OptionError):
        frameloom.compile(double, **given)
