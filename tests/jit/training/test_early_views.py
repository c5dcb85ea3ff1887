"""Autograd comes to what was made last first: to views of inputs, too, behind or before what a graph computes."""

import pytest
import torch

import frameloom

PROGRAMS = {
    "before": lambda x, y: (x.mT, x + y),
    "before, as a piece": lambda x, y: (x.unbind(0)[0], x + y),
    "before, twice": lambda x, y: (x.mT, x[0], x + y),
    "behind": lambda x, y: (x + y, x.mT),
}


@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_are_called_in_eagers_order(name, how):
    fn = PROGRAMS[name]
    jitted = frameloom.jit(fn, **how)
    for n in (2, 3, 3):
        seen = []
        for side in (fn, jitted):
            x, y = (torch.ones(1, n, n).requires_grad_() for _ in range(2))
            results = side(x, y)
            called = []
            for k, r in enumerate(results):
                r.register_hook(lambda g, k=k: called.append(k))
            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
            seen.append((called, x.grad.tolist(), y.grad.tolist()))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_that_waits_for_another_is_copied_into_the_others_layout(name, how):
    fn = PROGRAMS[name]
    jitted = frameloom.jit(fn, **how)
    for _ in range(2):
        seen = []
        for side in (fn, jitted):
            x, y = torch.ones(1, 1, 1), torch.ones(2, 2, 2)[::2, ::2, ::2]
            results = side(x.requires_grad_(), y.requires_grad_())
            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
            seen.append((x.grad.stride(), y.grad.stride()))
        assert seen[0] == seen[1]
