"""`torch.autograd.functional`, and `torch.autograd.grad` with all its options, inside compiled functions: one graph, equal to eager."""

import pytest
import torch
from torch.autograd import functional as A
from torch.autograd import grad

import frameloom
from tests.jit.gradients.training import caught, leaf
from tests.observe import same

V = torch.linspace(-1, 1, 4)
W = torch.linspace(0.5, 1.5, 4)


def calls(side, needs, sizes=(3, 3, 5)):
    """What a call of each size returns, and the gradients behind it."""
    seen = []
    for rows in sizes:
        x = torch.linspace(-1, 2, 4 * rows).reshape(rows, 4).requires_grad_(needs)
        w = W.clone().requires_grad_(needs)
        result = caught(side, x, w)
        tensors = [
            r for r in torch.utils._pytree.tree_leaves(result) if isinstance(r, torch.Tensor)
        ]
        seen.append((result, [r.requires_grad for r in tensors], x._version))
        roots = [r.sum() for r in tensors if r.requires_grad]
        if roots:
            sum(roots).backward()
        seen.append((x.grad, w.grad))
    return seen


PROGRAMS = {
    "jacobian": lambda x, w: A.jacobian(lambda y: (y * w).sin(), x[0]),
    "jacobian of two": lambda x, w: A.jacobian(lambda a, b: (a * b, a.sum()), (x[0], w)),
    "jacobian with a history": lambda x, w: A.jacobian(lambda y: (y * w).sin(), x[0], create_graph=True),
    "jacobian in a batch": lambda x, w: A.jacobian(lambda y: (y * w).sin(), x[0], vectorize=True),
    "jacobian of a constant": lambda x, w: A.jacobian(lambda y: w * 2, x[0]),
    "hessian": lambda x, w: A.hessian(lambda y: (y * w).sin().sum(), x[0]),
    "hessian with a history": lambda x, w: A.hessian(lambda y: (y**3 * w).sum(), x[0], create_graph=True),
    "hessian in a batch": lambda x, w: A.hessian(lambda y: (y**3 * w).sum(), x[0], vectorize=True),
    "vjp": lambda x, w: A.vjp(lambda y: (y * w).sin(), x, torch.ones_like(x)),
    "vjp without a vector": lambda x, w: A.vjp(lambda y: (y * w).sin().sum(), x),
    "vjp with a history": lambda x, w: A.vjp(lambda y: y.sin() * w, x, x * 2, create_graph=True),
    "jvp": lambda x, w: A.jvp(lambda y: (y * w).sin(), x, torch.ones_like(x)),
    "jvp with a history": lambda x, w: A.jvp(lambda y: y.sin() * w, x, x * 2, create_graph=True),
    "hvp": lambda x, w: A.hvp(lambda y: (y**3).sum(), x[0], w),
    "vhp": lambda x, w: A.vhp(lambda y: (y**3).sum(), x[0], w),
    "vhp of two": lambda x, w: A.vhp(lambda a, b: (a * b).exp().sum(), (x[0], w), (w, x[1])),
    "written inside": lambda x, w: A.jacobian(lambda y: (y * 2).mul_(w).sin_(), x[0]),
}  # fmt: skip


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_the_module(name, needs):
    fn = PROGRAMS[name]
    # A result whose history begins at a leaf that is made inside breaks the graph.
    whole = needs or "history" not in name
    same(calls(frameloom.jit(fn, fullgraph=whole), needs), calls(fn, needs), 1e-4, 1e-5, name)


REFUSED = {
    "a number": lambda x, w: A.jacobian(lambda y: y * 2, 3.0),
    "a vector of another size": lambda x, w: A.vjp(lambda y: y * 2, x, w),
    "no vector": lambda x, w: A.vjp(lambda y: y * 2, x),
    "no scalar": lambda x, w: A.hessian(lambda y: y * 2, x),
    "strict": lambda x, w: A.jacobian(lambda y: w * 2, x, strict=True),
    "a result that is a number": lambda x, w: A.jacobian(lambda y: 3, x),
    "the function raises": lambda x, w: A.jacobian(lambda y: y @ w[:2], x),
    "nothing unused": lambda x, w: grad((x.clone().requires_grad_() * 2).sum(), leaf(3)),
    "zeros for nothing unused": lambda x, w: grad(
        leaf(3).sin().sum(), [leaf(3)], allow_unused=False, materialize_grads=True
    ),
    "batched without a batch": lambda x, w: grad(leaf(3).sin().sum(), leaf(3), torch.ones(()), is_grads_batched=True),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name):
    fn = REFUSED[name]
    found, wanted = calls(frameloom.jit(fn), False), calls(fn, False)
    assert isinstance(wanted[0][0], tuple)
    assert isinstance(wanted[0][0][0], type)
    same(found, wanted, 1e-4, 1e-5, name)


def batched(x, w):
    y = x * 1
    y = y.detach().requires_grad_()
    z = (y[0] * w.detach()).sin()
    return grad(z, y, torch.eye(4), is_grads_batched=True)


def batched_with_a_history(x, w):
    y = x.detach().requires_grad_()
    z = (y[0] ** 3 * w).exp()
    (g,) = grad(z, y, torch.eye(4), is_grads_batched=True, create_graph=True)
    return g.pow(2).sum(), grad(g.sum(), y, retain_graph=True)


def batched_of_several(x, w):
    y, other = x.detach().requires_grad_(), torch.ones(2).requires_grad_()
    a, b = y.sin().sum(1), (y[0] * 2).cos()
    seeds = torch.eye(4)[:3].expand(3, 4), torch.arange(12.0).view(3, 4)
    seeds = torch.ones(3, 1) * torch.ones(x.shape[0]), seeds[1]
    return grad([a, b], [y, other], seeds, is_grads_batched=True, allow_unused=True)


def batched_products(x, w):
    y = x.detach().requires_grad_()
    z = torch.softmax(y @ w.detach().outer(w.detach()), -1)
    return grad(z[0], y, torch.eye(4), is_grads_batched=True, materialize_grads=True)


def unused(x, w):
    y, z = x.detach().requires_grad_(), w.detach().requires_grad_()
    return grad((y * 2).sum(), [y, z], allow_unused=True)


def zeros_for_unused(x, w):
    y, z = x.detach().requires_grad_(), w.detach().requires_grad_()
    return grad((y * 2).sum(), [y, z], materialize_grads=True)


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize(
    "fn", [batched, batched_with_a_history, batched_of_several, batched_products, unused, zeros_for_unused]
)  # fmt: skip
def test_options_of_grad(fn, needs):
    is_batched = fn.__name__.startswith("batched")
    # PyTorch's own batches do not know symbolic sizes; the graph breaks.
    for sizes, whole in (
        ((3, 3), fn is not batched_with_a_history),
        ((3, 3, 5, 7), not is_batched),
    ):
        found = calls(frameloom.jit(fn, fullgraph=whole), needs, sizes)
        same(found, calls(fn, needs, sizes), 1e-4, 1e-5, fn.__name__)
