"""An error of our own code is not taken for the program's."""

import dataclasses

import pytest
import torch

import frameloom
from frameloom import compiler, errors
from frameloom.capture.recording import function_call
from frameloom.capture.symbolic.dynamic_index import by_views, set_by_views
from frameloom.config import config
from frameloom.errors import is_mistake


def error_of(fn, *args):
    try:
        fn(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_error_of_the_program_or_of_pytorch_is_no_mistake():
    assert not is_mistake(error_of(lambda: None.nothing))
    assert not is_mistake(error_of(torch.add, 1))
    x = torch.ones(3, 2)
    assert not is_mistake(error_of(set_by_views, x, (slice(None), 0), "no number"))
    assert not is_mistake(error_of(by_views, x, ("no place", 0)))


@pytest.mark.parametrize("verify", [True, False])
def test_a_mistake_is_raised_when_verifying_and_counted_otherwise(monkeypatch, verify):
    namespace = {"__name__": "frameloom.capture.mistaken"}
    exec("def mistaken(recorder, *args, **kwargs): return args.nothing", namespace)
    monkeypatch.setitem(function_call.WHOLE, torch.erf, namespace["mistaken"])
    for module in (errors, compiler):
        monkeypatch.setattr(module, "config", dataclasses.replace(config, verify=verify))
    frameloom.reset()
    x = torch.ones(2)
    jitted = frameloom.jit(lambda x: torch.erf(x) + 1)
    if verify:
        with pytest.raises(AttributeError, match="nothing"):
            jitted(x)
    else:
        assert torch.equal(jitted(x), torch.erf(x) + 1)
    assert frameloom.stats().get("failures", 0) == (0 if verify else 1)
