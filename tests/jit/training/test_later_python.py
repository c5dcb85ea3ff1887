"""Code that autograd calls in the backward pass finds what closures, items, attributes and globals hold by then.

Drawn programs: `python -m tests.sweeps later`.
"""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import frameloom
from tests.jit.gradients.training import same_training
from tests.sweeps.later import sweep_later


def test_drawn_programs():
    assert not [*sweep_later(count=40)]


class Box:
    v = None


class Scales(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, box):
        ctx.box = box
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.box.v, None


def trained(fn):
    def program(jit):
        jitted, seen = jit(fn), []
        for _ in range(2):
            x, z = torch.arange(4.0).view(2, 2), torch.ones(2, 2, requires_grad=True)
            try:
                jitted(x, z).sum().backward()
                seen.append(z.grad)
            except Exception as error:
                seen.append(type(error).__name__)
        return seen

    same_training(program)


def test_a_variable_of_a_loop():
    def fn(x, z):
        for k in range(3):
            part = x + k
            z = checkpoint(lambda q: q * part, z, use_reentrant=False)
        return z

    trained(fn)


def test_a_variable_behind_a_break():
    def fn(x, z):
        part = x + 1
        z = checkpoint(lambda q: q * part, z, use_reentrant=False)
        frameloom.graph_break()
        part = x + 2
        return z

    trained(fn)


def test_a_variable_of_a_block():
    class Block:
        def __enter__(self):
            pass

        def __exit__(self, *exception):
            return False

    def fn(x, z):
        part = x + 1
        with Block():
            z = checkpoint(lambda q: (q * part).sum(-1), z, use_reentrant=False)
        part = x + 2
        return z

    trained(fn)


def test_a_list_that_is_an_argument():
    def fn(x, z):
        parts = [x + 1]
        z = checkpoint(lambda q, own: q * own[0], z, parts, use_reentrant=False)
        parts[0] = x + 2
        return z

    trained(fn)


def test_an_attribute_that_backward_reads():
    def fn(x, z):
        box = Box()
        box.v = x + 1
        z = Scales.apply(z, box)
        box.v = x + 2
        return z

    trained(fn)


def test_a_pass_before_the_change():
    def fn(x, z):
        box = Box()
        box.v = x + 1
        y = Scales.apply(z, box)
        y.sum().backward()
        box.v = x + 2
        return z * z.grad

    trained(fn)


@pytest.mark.parametrize(
    "reshape", [lambda t: t.transpose_(0, 1), lambda t: t.unsqueeze_(0), lambda t: t.resize_(4)]
)
def test_a_tensor_that_gets_another_shape(reshape):
    def fn(x, z):
        part = x + 1
        z = checkpoint(lambda q: q * part, z, use_reentrant=False)
        reshape(part)
        return z

    trained(fn)


class Layer(torch.nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return checkpoint(self.inner, x, use_reentrant=False)

    def inner(self, x):
        return super().forward(x).relu()


def test_other_changes_do_not_matter():
    layers = torch.nn.ModuleList([Layer(2, 2) for _ in range(3)])

    def fn(x, z):
        seen = [z]
        for layer in layers:
            seen.append(layer(seen[-1]))
        return seen[-1] * len(seen)

    x, z = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    frameloom.reset()
    frameloom.jit(fn, fullgraph=True)(x, z).sum().backward()
    assert frameloom.stats()["graphs"] == 1
    assert [layer.calls for layer in layers] == [1, 1, 1]


def test_pieces_of_what_a_pass_has_used_up():
    def fn(x, z):
        y = z * 3
        pieces = y.unbind(-1)
        y.sum().backward()
        y.add_(1)
        return y, pieces

    def program(jit):
        seen = []
        y, pieces = jit(fn)(None, torch.ones(2, requires_grad=True))
        for t in (y, *pieces):
            try:
                t.sum().backward()
            except RuntimeError as error:
                seen.append(str(error)[:40])
        return seen

    same_training(program)
