"""Views made in one mode and used in another, with graph breaks between; `python -m tests.sweeps modes` draws more of them."""

import pytest
import torch

import frameloom
from tests.sweeps.modes import sweep_modes

BACKENDS = ["frameloom", "eager"]


def same(fn, make, backend):
    wanted, given = (outcome(f, make()) for f in (fn, frameloom.jit(fn, backend=backend)))
    assert repr(given) == repr(wanted)


def outcome(fn, x):
    try:
        found = fn(x)
    except RuntimeError as error:
        return str(error)
    return [(t.tolist(), t.requires_grad, t.is_inference(), t._is_view()) for t in (*found, x)]


def inference():
    with torch.inference_mode():
        return torch.ones(4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_view_behind_a_mode_in_which_the_graph_broke(mode, backend):
    """The frame goes on in that mode, and the view is made outside of it."""

    def fn(x):
        with mode():
            frameloom.graph_break()
        v, y = x[1:], x * 3
        frameloom.graph_break()
        v.mul_(torch.ones(()).requires_grad_())
        return v, y

    same(fn, lambda: torch.ones(4), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_of_a_detached_tensor_behind_inference_mode(backend):
    def fn(x):
        with torch.inference_mode():
            frameloom.graph_break()
        v, y = x.detach()[1:], x * 3
        frameloom.graph_break()
        v.mul_(torch.ones(()).requires_grad_())
        return v, y

    same(fn, lambda: torch.ones(4), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_made_in_inference_mode_is_refused_as_such(backend):
    def fn(x):
        with torch.inference_mode():
            v = x[1:]
        y = x * 3
        frameloom.graph_break()
        v.mul_(torch.ones(()).requires_grad_())
        return v, y

    same(fn, lambda: torch.ones(4), backend)


@pytest.mark.compiled
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_inference_tensor_is_written_in_inference_mode(backend):
    def fn(x):
        w = torch.ones(()).requires_grad_()
        with torch.inference_mode():
            x.mul_(w + 1)
        return (w,)

    same(fn, inference, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bits_of_complex_numbers_written_behind_a_break(backend):
    def fn(x):
        v = torch.view_as_real(x.to(torch.complex64))[1]
        frameloom.graph_break()
        v.mul_(torch.ones(()).requires_grad_())
        return (v,)

    same(fn, lambda: torch.ones(4), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_of_what_was_written_stays_one_beside_others(backend):
    def fn(x):
        v, y = (x * 2).add_(1)[1:], x.detach() * 3
        frameloom.graph_break()
        v.detach_()
        return v, y

    same(fn, lambda: torch.ones(4).requires_grad_(), backend)


def test_drawn_programs_are_as_in_eager():
    assert not [*sweep_modes(seed=1, count=200)]
