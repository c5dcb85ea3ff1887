"""An error of our own code is not taken for the program's."""

import dataclasses
import math

import pytest
import torch

import frameloom
from frameloom import compiler, errors, pipeline
from frameloom.capture import record
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


@pytest.mark.parametrize("verify", [True, False])
def test_a_mistake_is_raised_when_verifying_and_counted_otherwise(monkeypatch, verify):
    namespace = {"__name__": "frameloom.capture.mistaken"}
    exec("def mistaken(recorder, *args, **kwargs): return args.nothing", namespace)
    monkeypatch.setitem(record.WHOLE, torch.erf, namespace["mistaken"])
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


def test_views_whose_sizes_vary_are_not_asked_about(monkeypatch):
    monkeypatch.setattr(pipeline, "config", dataclasses.replace(config, verify=True))

    def fn(x, like):
        count = math.prod(like.shape)
        y = x.flatten().repeat(count // x.numel() + 1)[:count].view(like.shape)
        return torch.stack([y, y], -1)[..., 1].reshape(25, 5)

    x, like = torch.rand(5, 5), torch.rand(5, 5, 5)
    assert torch.equal(frameloom.jit(fn, dynamic=True)(x, like), fn(x, like))
