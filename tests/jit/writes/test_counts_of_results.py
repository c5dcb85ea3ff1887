"""Results that the program wrote to tell autograd as many writes as in eager, so that it notices later ones."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import frameloom
from frameloom import jit


def parts(x):
    y = x + 1
    y[0].mul_(2)
    y.t()[1:].add_(1)
    return y[1:], y


def behind_a_break(x):
    y = x + 1
    y.mul_(2)
    print(end="")
    y.mul_(2)
    return y, y._version


def asked(x):
    y = x + 1
    y.mul_(2)
    return y, y._version


def on_a_list(x):
    y = [x + 1, x + 2]
    torch._foreach_mul_(y, 2)
    return y, y[0]._version


def by_data(x):
    y = x + 1
    d = y.data
    d.mul_(2)
    y.add_(1)
    d.add_(1)
    return y, d, d[0]


def by_data_alone(x):
    d = (x + 1).data
    d.mul_(2)
    return d


def by_data_of_an_input(x):
    d = x.data
    d.mul_(2)
    return x * 1, d[0]


def copied(x):
    y = (x + 1).detach()
    shallow = copy.copy(y)
    y.mul_(2)
    print(end="")
    deep = copy.deepcopy(shallow)
    deep.mul_(2)
    return y, shallow, deep, shallow._version, deep.detach()._version


def detached(x):
    d = (x + 1).detach()
    d.mul_(2)
    return d[0], d


def written_by_a_break(x):
    y = x + 1
    try:
        y.mul_(torch.ones(5))
    except RuntimeError:
        y.add_(1)
    return y


def several(x):
    a, b = x + 1, x * 2
    a.relu_()
    c = b.sin().add_(1)
    return c.t(), a, b, x.sum()


def conjugated(x):
    z = x + 1j
    z.mul_(2)
    return z.conj(), z


@torch.library.custom_op("counts_of_results::scale", mutates_args=("x",))
def scale(x: torch.Tensor) -> None:
    x.mul_(2)


PROGRAMS = [
    parts,
    behind_a_break,
    asked,
    on_a_list,
    by_data,
    by_data_alone,
    by_data_of_an_input,
    copied,
    detached,
    written_by_a_break,
    several,
    conjugated,
    lambda x: F.leaky_relu(x + 1, inplace=True),
    lambda x: torch.add(x.detach(), 1, out=torch.empty(3, 3)),
    lambda x: [torch.randn(3), torch.empty(3).normal_(), torch.randperm(4), torch.arange(3)],
    lambda x: torch.tensor([1.0, 2.0]).add_(1),
    lambda x: (x + 1).detach().requires_grad_(),
]


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_results_count_the_writes_of_the_program(fn, requires_grad, options):
    jitted = jit(fn, **options)
    for grad in (True, False, True):
        seen = []
        for side in (fn, jitted):
            x = torch.arange(9.0).view(3, 3).requires_grad_(requires_grad)
            with torch.set_grad_enabled(grad):
                results = tree_leaves(side(x))
            told = [r._version if isinstance(r, torch.Tensor) else r for r in results]
            seen.append((told, x._version))
        assert seen[0] == seen[1]


def test_writes_of_an_operator_of_the_program_are_counted():
    """Its kernel may count more of its own."""

    def fn(x, w):
        y = x + 1
        z = y * w
        with torch.no_grad():
            scale(y)
        return y, z

    w = torch.ones(3, requires_grad=True)
    for side in (fn, jit(fn)):
        y, z = side(torch.ones(3), w)
        assert y._version > 0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def view_result(x, w):
    y = (x * w).sin()
    y = y + 1
    y.mul_(w)
    v = y[0]
    return y, v, v * w, y * w


def test_calls_in_inference_mode():
    def fn(x):
        return (x + 1).mul_(2)

    f = jit(fn)
    with torch.inference_mode():
        assert f(torch.ones(2)).is_inference()
    assert f(torch.ones(2))._version == 1


@pytest.mark.parametrize("backend", ["frameloom", "eager"])
@pytest.mark.parametrize("make", [torch.arange, torch.randperm])
def test_a_view_of_what_counted_its_own_writes(make, backend):
    """The view had stored the higher count, and missed the next write with a history."""

    def fn():
        v = make(4)[1:]
        frameloom.graph_break()
        v[:1].add_(1)
        return v, v._version

    def numbers():
        v = make(4.0 if make is torch.arange else 4, dtype=torch.float)[1:]
        frameloom.graph_break()
        w = torch.ones(()).requires_grad_()
        v[:1].mul_(w)
        return v, v._version

    for program in (fn, numbers):
        seen = []
        for side in (program, jit(program, backend=backend)):
            v, version = side()
            seen.append((version, v._version, v.requires_grad, v.is_leaf))
        assert seen[0] == seen[1]


def test_versions_of_tensors_made_in_inference_mode():
    def fn(x):
        with torch.inference_mode():
            y = x + 1
            y.mul_(2)
            frameloom.graph_break()
            z = y * 2
            z.add_(1)
        frameloom.graph_break()
        return y.is_inference(), z.is_inference(), torch.is_inference_mode_enabled(), y, z

    jitted = jit(fn)
    for given in (torch.ones(3), torch.ones(3).requires_grad_(), torch.ones(4)):
        wanted, found = fn(given), jitted(given)
        assert wanted[:3] == found[:3]
        assert all(map(torch.equal, wanted[3:], found[3:]))


def kept_by_the_program(x, w):
    y = x + 1
    y.mul_(2)
    print(end="")
    z = y * w
    with torch.no_grad():
        y.mul_(2)
    return z


def kept_by_the_graph(x, w):
    y = x.exp()
    y.mul_(2)
    z = y * w
    print(end="")
    with torch.no_grad():
        y.mul_(2)
    return z


@pytest.mark.parametrize("fn", [kept_by_the_program, kept_by_the_graph])
def test_a_write_to_what_is_saved_is_noticed(fn):
    errors = []
    for side in (fn, jit(fn)):
        w = torch.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            side(torch.ones(3), w).sum().backward()
        errors.append(str(caught.value).partition("Hint")[0])
    assert errors[0].partition("is at")[2] == errors[1].partition("is at")[2]


@pytest.mark.parametrize("backend", ["default", "eager"])
def test_views_among_the_results_of_a_node(backend):
    seen = []
    options = {} if backend == "default" else {"backend": backend}
    for side in (view_result, jit(view_result, **options)):
        x, w = torch.ones(3, 3), torch.ones(3, requires_grad=True)
        results = side(x, w)
        seen.append(([r._version for r in results], x._version, w._version))
        sum(r.sum() for r in results).backward()
        seen[-1] += (w.grad.tolist(),)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("fn", [parts, several])
def test_a_result_that_was_written_may_be_saved(fn):
    seen = []
    for side in (fn, jit(fn)):
        x, w = torch.ones(3, 3, requires_grad=True), torch.ones(3, requires_grad=True)
        sum((r * w).sum() for r in tree_leaves(side(x))).backward()
        seen.append((x.grad, w.grad))
    assert all(map(torch.allclose, *seen))
