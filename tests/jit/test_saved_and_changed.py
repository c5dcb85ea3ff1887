"""Inputs that one result's gradient needs, changed before a backward pass from another: as PyTorch tells it since 2.12, and without its word."""

import pytest
import torch

import frameloom
from frameloom import saved_tensors


@pytest.fixture(params=["told", "compared"])
def way(request, monkeypatch):
    monkeypatch.setattr(saved_tensors, "TELLS", request.param == "told" and saved_tensors.TELLS)


def program(x, w, v):
    return (x * w).sum(), (x.exp() * v).sum()


def message(loss, **options):
    try:
        loss.backward(**options)
    except RuntimeError as error:
        return str(error)
    return None


def seen(fn, first, again):
    """Passes from result `first`, which does not need `v`, and the other one's, behind a change of `v`."""
    x, w, v = (torch.full((3,), k / 2, requires_grad=True) for k in (1, 2, 3))
    results = fn(x, w, v)
    with torch.no_grad():
        v.add_(1)
    found = [message(results[0], retain_graph=again)] if first else []
    found += [message(results[1], retain_graph=again), message(results[0])]
    return found, x.grad, w.grad, v.grad


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_only_a_pass_that_reads_it_minds(way, first, again):
    got, want = seen(frameloom.jit(program), first, again), seen(program, first, again)
    assert got[0] == want[0]
    for a, b in zip(got[1:], want[1:], strict=True):
        assert (a is None) == (b is None) and (a is None or torch.allclose(a, b))


def test_hooks_of_the_program_stay(way):
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t.clone()

    for fn in (program, frameloom.jit(program)):
        x, w, v = (torch.full((3,), k / 2, requires_grad=True) for k in (1, 2, 3))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            results = fn(x, w, v)
        with torch.no_grad():
            v.add_(1)
        assert message(results[1]) is None  # hooks keep what there was
        assert packed
