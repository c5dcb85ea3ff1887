"""Hooks on the node that adds up the gradients of a leaf, where `backward` is called inside jitted code.

Libraries that gather gradients of several machines keep these nodes of all parameters, with hooks on them.
"""

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

import frameloom
from frameloom import jit
from frameloom.capture import _capture


def step(x, w):
    loss = (x * w).sin().sum()
    loss.backward()
    return loss


def leaf():
    return torch.linspace(0, 1, 4).requires_grad_()


def accumulator(tensor):
    return tensor.expand_as(tensor).grad_fn.next_functions[0][0]


def hooked(run, w, register):
    """Returns what hooks see in one call, and the gradient."""
    node, seen = accumulator(w), []
    getattr(node, register)(lambda *grads: seen.append((w.grad is None, *map(str, grads))))
    run(torch.ones(4), w)
    return seen, w.grad.tolist()


@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
def test_hooks_set_before_the_first_call(register):
    compiled = jit(step)
    for _ in range(2):
        want = hooked(step, leaf(), register)
        assert len(want[0]) == 1
        assert hooked(compiled, leaf(), register) == want


@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
def test_hooks_set_after_calls(register):
    frameloom.reset()
    compiled = jit(step)
    for _ in range(2):
        compiled(torch.ones(4), leaf())
    assert frameloom.stats()["graphs"] == 1 and frameloom.stats()["breaks"] == 0
    for _ in range(2):
        assert hooked(compiled, leaf(), register) == hooked(step, leaf(), register)
    compiled(torch.ones(4), w := leaf())
    step(torch.ones(4), v := leaf())
    torch.testing.assert_close(w.grad, v.grad)


def test_hooks_of_the_parameters_of_a_module():
    seen = []
    net = torch.nn.Linear(3, 2)
    compiled = jit(lambda x: net(x).sum().backward())
    compiled(torch.ones(3))
    nodes = [accumulator(p) for p in net.parameters()]
    for number, node in enumerate(nodes):
        node.register_hook(lambda *_, number=number: seen.append(number))
    compiled(torch.ones(3))
    assert sorted(seen) == [0, 1]
    assert net.bias.grad.tolist() == [2, 2]


def test_a_hook_that_is_gone_with_its_node():
    w, seen = leaf(), []
    accumulator(w).register_hook(lambda *_: seen.append(1))  # nothing holds the node
    compiled = jit(step)
    compiled(torch.ones(4), w)
    assert not seen


def test_a_node_without_hooks_does_not_matter():
    frameloom.reset()
    compiled, w = jit(step), leaf()
    kept = [compiled(torch.ones(4), w), get_gradient_edge(w)]
    w.grad = None
    kept.append(compiled(torch.ones(4), w))
    assert frameloom.stats()["recompiles"] == 0 and frameloom.stats()["breaks"] == 0


def test_what_the_guard_reads():
    w = leaf()
    assert not _capture.accumulator_hooked(w)
    node = accumulator(w)
    assert not _capture.accumulator_hooked(w)
    node.register_hook(print)
    assert _capture.accumulator_hooked(w)
    assert not _capture.accumulator_hooked(w * 2) and not _capture.accumulator_hooked(leaf())
    del node
    assert not _capture.accumulator_hooked(w)
