"""Where kernels are waited for, the texts of the backward graph are written meanwhile."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from frameloom import jit, pipeline


@pytest.fixture
def lowered(monkeypatch):
    """The graphs that were lowered, with much to wait for after each."""
    seen = []
    (name, lower, file), *rest = pipeline.PROGRAM_STAGES

    def counted(captured):
        seen.append(captured)
        return lower(captured)

    monkeypatch.setattr(pipeline, "PROGRAM_STAGES", ((name, counted, file), *rest))
    monkeypatch.setattr(pipeline.Texts, "go_on", lambda self: pipeline.MUCH)
    return seen


def both(fn, shape, pick):
    """Gradients of what `pick` takes of the results, plain and jitted."""
    found = []
    for f in (fn, jit(fn)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(shape[-1], 8), nn.ReLU(), nn.Linear(8, 4))
        x = torch.randn(shape, requires_grad=True)
        pick(f(model, x)).sum().backward()
        found.append([x.grad, *(p.grad for p in model.parameters())])
    torch.testing.assert_close(found[1], found[0])


def test_the_texts_are_written_once(lowered):
    both(lambda model, x: model(x.t().contiguous().t() * 2).square(), (5, 6), lambda y: y)
    assert len(lowered) == 2


def test_other_outputs_have_a_graph_of_their_own(lowered):
    def two(model, x):
        y = model(x)
        return y.sin(), (y * 3).exp()

    both(two, (5, 6), lambda ys: ys[0])
    assert len(lowered) == 3
    both(two, (5, 6), lambda ys: ys[0] * ys[1])
    assert len(lowered) == 5


def test_a_pass_that_cannot_be_prepared_is_compiled_when_it_comes(lowered, monkeypatch):
    monkeypatch.setattr(pipeline, "config", replace(pipeline.config, verify=False))
    monkeypatch.setattr(pipeline, "Partial", lambda *_: 1 / 0)
    both(lambda model, x: model(x).square(), (5, 6), lambda y: y)
    assert len(lowered) == 2
