"""Casts of weights that autocast keeps until a region ends: plain PyTorch goes on with them where the weight has changed since."""

import contextlib
import functools
import itertools

import pytest
import torch

from frameloom import jit
from frameloom.capture.tensors.cast_cache import REGION
from tests.helpers import jit_for_test
from tests.jit.modes.autocast_scenarios import (
    SCENARIOS,
    X,
    modes_around,
    modes_inside,
    region,
    weight,
)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return list(itertools.chain.from_iterable(map(tensors, value)))


def seen_of(scenario, wrap):
    seen, w = scenario(wrap)
    seen = tensors(seen)
    w.grad = None
    followed = [t for t in seen if t.requires_grad]
    if followed:
        sum((t.float() * (k + 1)).sum() for k, t in enumerate(followed)).backward()
    assert not torch.is_autocast_enabled("cpu")
    return [*seen, w, *([] if w.grad is None else [w.grad])]


@pytest.fixture(autouse=True)
def nothing_known():
    REGION.changes = False


def test_what_lies_in_a_region_stays_one_graph():
    def inside(x, w):
        with region():
            return (x @ w) @ w

    for fn, around in ((inside, contextlib.nullcontext), (lambda x, w: x @ w, region)):
        w, f = weight(), jit_for_test(fn, fullgraph=True)
        for changes in (False, True):
            REGION.changes = changes
            for _ in range(5):
                with around():
                    f(X, w).sum().backward()
        assert not f.explanation.breaks
        assert len(f.explanation.graphs) == (1 if fn is inside else 2)


def test_weights_that_stay_are_cast_in_the_graph():
    w, f = weight(), jit(lambda x, w: x @ w)
    for _ in range(5):
        with region():
            y = f(X, w)
    assert "ToCopy" not in {type(n).__name__.removesuffix("Backward0") for n, _ in y.grad_fn.next_functions}  # fmt: skip


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_values_and_gradients_are_those_of_plain_pytorch(scenario, freezing):
    if freezing and scenario in (modes_inside, modes_around):
        pytest.skip("without gradients, freezing counts on weights that stay as they are")
    wrap = functools.partial(jit, options={"freezing": freezing})
    want, got = seen_of(scenario, lambda fn: fn), seen_of(scenario, wrap)
    assert len(got) == len(want)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.dtype == b.dtype and a.requires_grad == b.requires_grad, k
        torch.testing.assert_close(a, b, rtol=0.01, atol=0.01, msg=lambda m, k=k: f"{k}: {m}")
