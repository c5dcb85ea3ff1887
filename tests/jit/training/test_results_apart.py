"""Results of one graph that lead to others, or to other inputs than the rest: a pass goes where eager's goes, and gradients between them can be asked for."""

import weakref

import pytest
import torch

import frameloom
from tests.jit.gradients.training import caught, leaf, same_training
from tests.sweeps.passes import sweep_passes


def dependent(x):
    t = x.sin()
    return t, (t * t * x).tanh()


def in_a_row(x, w):
    t = x.sin()
    u = (t * w).exp()
    return t, u, (t * u * x).tanh()


@pytest.mark.parametrize("first", range(2))
def test_hooks_set_behind_the_call_on_what_a_result_does_not_need(first):
    def program(jit):
        x, y, seen = leaf(2), leaf(2) * 1.5, []
        results = jit(lambda x, y: (x * 2, (y * x.sin()).tanh()))(x, y)
        y.register_hook(lambda g: seen.append(g) or g * 2)
        results[first].sum().backward()
        return x.grad, seen

    same_training(program)


def test_hooks_of_a_leaf_whose_gradient_is_computed_apart():
    def program(jit):
        x, y, seen = leaf(2), leaf(2), []
        one, _ = jit(lambda x, y: (x.sin(), y.exp()))(x, y)
        y.register_hook(lambda g: seen.append(g))
        one.sum().backward()
        return x.grad, seen

    same_training(program)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0), (1, 1)])
def test_passes_let_go_of_the_history_of_their_own_result(order):
    def program(jit):
        x, y, z = leaf(2), leaf(2).exp(), leaf(2).exp()
        results = jit(lambda x, y, z: ((y * x).tanh(), torch.dropout(z * x, 0.3, True)))(x, y, z)
        return [caught(results[k].sum().backward) for k in order], x.grad

    same_training(program)


@pytest.mark.parametrize("keep", [False, True])
def test_a_gradient_between_results(keep):
    def program(jit):
        x = leaf(4)
        t, s = jit(dependent)(x)
        asked = [[t], [t, x], [x]] if keep else [[t]]
        found = [torch.autograd.grad(s.sum(), ends, retain_graph=keep) for ends in asked]
        return found, caught(s.sum().backward, retain_graph=keep), caught(t.sum().backward), x.grad

    same_training(program, graphs=1)


def test_a_gradient_between_results_that_has_a_gradient():
    def program(jit):
        x, w = leaf(4), leaf(4)
        t, u, s = jit(in_a_row)(x, w)
        found = torch.autograd.grad(s.sum(), [t, u], create_graph=True)
        sum(g.square().sum() for g in found).backward()
        return [g.detach() for g in found], x.grad, w.grad

    same_training(program, graphs=1)


@pytest.mark.parametrize("looked", ["hook", "retain", "named"])
@pytest.mark.parametrize("roots", [(2,), (1, 2), (0, 1, 2)])
def test_what_flows_between_results_in_a_row(looked, roots):
    def program(jit):
        x, w, seen = leaf(4), leaf(4), []
        results = jit(in_a_row)(x, w)
        for t in results:
            if looked == "hook":
                t.register_hook(lambda g: seen.append(g.clone()) or g * 3)
            elif looked == "retain":
                t.retain_grad()
        out = sum(results[k].sum() for k in roots)
        if looked == "named":
            seen += torch.autograd.grad(out, [*results[:2], x], retain_graph=True)
        out.backward()
        return seen, x.grad, w.grad, [t.grad if t.retains_grad else None for t in results]

    same_training(program, graphs=1)


def test_a_pass_from_a_result_lets_others_be_computed_on_from():
    """What is behind the result is let go of, what is between it and others stays."""

    def program(jit):
        x = leaf(4)
        t, s = jit(dependent)(x)
        torch.autograd.grad(s.sum(), t)
        return caught(t.sum().backward), x.grad, caught(s.sum().backward)

    same_training(program)


def test_a_pass_in_a_hook_of_another():
    def program(jit):
        x, seen = leaf(4), []
        t, s = jit(dependent)(x)

        def hook(g):
            seen.extend(torch.autograd.grad(t.sum(), x, retain_graph=True))
            return g

        t.register_hook(hook)
        s.sum().backward()
        return x.grad, seen

    same_training(program)


def test_a_view_where_only_one_of_two_gradients_comes():
    """The one that comes begins elsewhere in memory than their sum."""

    def fn(x):
        v = x.reshape(2, 2).t().reshape(4)
        return v, torch.cat([x, v])[1:5]

    def program(jit):
        x = leaf(4)
        jit(fn)(x)[1].backward(torch.linspace(1, 2, 4))
        return x.grad

    same_training(program)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("end", ["input", "result"])
def test_results_go_with_what_a_pass_has_noted(end, create_graph):
    x, w = leaf(4).exp(), leaf(4).exp()
    results = frameloom.jit(lambda x, w: (*in_a_row(x, w), w.cos()))(x, w)
    ends = x if end == "input" else results[0]
    torch.autograd.grad(results[2].sum(), ends, create_graph=create_graph)
    nodes = [weakref.ref(t.grad_fn) for t in results]
    del results, ends
    assert not any(node() for node in nodes)


def test_one_result_is_one_node():
    frameloom.reset()
    x = leaf(4)
    made = frameloom.jit(lambda x: (x.sin().sum(), x.detach() * 2))(x)  # the node goes with it
    ends = made[0].grad_fn.next_functions
    assert [type(f).__name__ for f, _ in ends if f] == ["AccumulateGrad"]


def test_passes_of_drawn_programs():
    assert not [
        *sweep_passes((*range(60), 2880))
    ]  # 2880: a leaf's memory behind passes that let go
    # 745: views of views, 1221 and 1732: second derivatives, 70: what ended the process in eager.
    assert not [*sweep_passes((70, 745, 1221, 1732), writes=True)]


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def test_a_number_that_no_gradient_reads_beside_a_result_of_a_result():
    def fn(x, n, kept):
        kept.append(int(n / 2))
        rounded = Rounded.apply(x)
        return rounded, rounded.double()

    jitted = frameloom.jit(fn)
    for shape, n in (((1, 2, 4), 3), ((4, 4, 1), 1), ((4, 4, 2), 5)):
        grads = []
        for side in (fn, jitted):
            x, kept = torch.ones(shape, requires_grad=True), []
            first, second = side(x, n, kept)
            (first.sum() + second.sum()).backward()
            grads.append((x.grad, kept))
        assert torch.equal(grads[0][0], grads[1][0]) and grads[0][1] == grads[1][1]


def test_a_gradient_with_respect_to_a_result_that_was_written():
    def fn(x):
        second = torch.where(x > 0.5, x, x * 2)
        first = torch.zeros_like(second)
        first.copy_(second)
        first.add_(x.sum().abs())
        third = (first * 0.5).exp_()
        return first, third, second

    found = []
    for side in (fn, frameloom.jit(fn, dynamic=True)):
        x = torch.linspace(0.1, 1, 4, requires_grad=True)
        first, second, third = side(x.view(2, 2))
        found.append(torch.autograd.grad(second.sum() + third.sum(), [first, x]))
    for plain, jitted in zip(*found, strict=True):
        assert torch.allclose(plain, jitted)


@pytest.mark.parametrize("make", [lambda x: x * 2, lambda x: x.sum().expand(4)])
def test_a_result_is_computed_from_a_view_of_another(make):
    """The gradient comes to the other one by way of autograd's own node."""

    def fn(x):
        first = make(x)
        view = first[:]
        return (view * x).cumsum(0), first, view

    found = []
    for side in (fn, frameloom.jit(fn)):
        leaf = torch.arange(4.0).requires_grad_()
        for which in (1, 2):
            results = side(leaf * 1)
            results[which].register_hook(lambda g: found.append(g.tolist()))
            results[0].sum().backward()
            results = side(leaf * 1)
            results[which].retain_grad()
            results[0].sum().backward()
            found += [results[which].grad.tolist(), leaf.grad.tolist()]
    assert found[: len(found) // 2] == found[len(found) // 2 :]


@pytest.mark.parametrize(
    "fn", [lambda x, y: (x - (z := y * 2), z), lambda x, y: (x + 0 - (z := y % 1), z, y)]
)
def test_strides_of_a_gradient_that_is_handed_on_while_others_wait_for_it(fn):
    """A leaf takes what nobody else has, and copies the rest into its own layout."""
    strides = []
    for side in (fn, frameloom.jit(fn)):
        x = torch.empty_strided([1], [2]).fill_(0.5).requires_grad_()
        results = side(x, torch.ones((), requires_grad=True))
        sum((r * torch.ones(r.shape)).sum() for r in results).backward()
        strides.append(x.grad.stride())
    assert strides[0] == strides[1]
