"""torch.cond, torch.while_loop and frameloom.cond: part of the graph where the branches only compute, interpreted where not."""

import pytest
import torch

import frameloom
from frameloom.capture.library.torch_api import cond as control
from tests import fresh
from tests.helpers import jit_for_test
from tests.observe import assert_same_call, observe

WEIGHT = torch.randn(4, 4)
PRECISE = WEIGHT.double()  # a chain of products makes more of a rounding error
CALLS = {"torch": torch.cond, "frameloom": frameloom.cond}


def x():
    return torch.randn(3, 4)


def check(fn, *calls, graphs=1, breaks=0):
    """`fn(cond, ...)` in plain Python, and jitted with each of the functions."""
    for name, cond in CALLS.items():
        jitted = jit_for_test(lambda *args, c=cond: fn(c, *args))
        with torch.no_grad():
            for args in (*calls, *calls):
                want = observe(lambda *a: fn(control.cond, *a), args, {})
                assert_same_call(observe(jitted, args, {}), want, f"{name}: ", 1e-5, 1e-5)
        found = jitted.explanation
        if graphs is not None:
            assert (len(found.graphs), len(found.breaks)) == (graphs, breaks), str(found)
    return found


BOTH = ((x().abs(),), (-x().abs(),))


def nested(y):
    return {"a": (y + 1, [y * 2])}


CASES = {
    "elementwise": lambda cond, x: cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
    "lambdas": lambda cond, x: cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2 - 1, (x,)) * 3,
    "keywords": lambda cond, x: cond(
        pred=x.sum() > 0, true_fn=lambda y: y + 1, false_fn=lambda y: y - 1, operands=[x]
    ),
    "of_one_element": lambda cond, x: cond((x[:1, :1] > 0).view(1), torch.exp, torch.cos, (x,)),
    "numbers": lambda cond, x: cond(x.sum().relu(), torch.exp, torch.cos, (x,)),
    "products": lambda cond, x: cond(x.sum() > 0, lambda y: y @ WEIGHT, lambda y: y @ WEIGHT.t(), (x,)),
    "closures": lambda cond, x: (lambda z: cond(x.sum() > 0, lambda: x + z, lambda: x * z))(x * 2),
    "intermediates": lambda cond, x: cond(x.sum() > 0, torch.sin, torch.cos, ((x * 2 + 1).t(),)) + 1,
    "views": lambda cond, x: cond(x.sum() > 0, lambda y: (y + 1).t(), lambda y: (y - 1).t(), (x[1:],)),
    "nested": lambda cond, x: cond(x.sum() > 0, nested, lambda y: {"a": (y, [y * 3])} and nested(y * 2), (x,)),
    "several": lambda cond, x: cond(x.sum() > 0, lambda a, b: (a + b, a - b), lambda a, b: (a * b, b - a), (x, x * 2)),
    "two_calls": lambda cond, x: cond(x.sum() > 0, torch.sin, torch.cos, (cond(x[0, 0] > 0, torch.exp, torch.tanh, (x,)),)),
    "the_same_outside": lambda cond, x: cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + x.sin() + x.cos() + x.sin(),
    "the_same_before": lambda cond, x: (x.sin() + x.cos(), cond(x.sum() > 0, torch.sin, torch.cos, (x,))),
    "written_before": lambda cond, x: (x.add_(1), cond(x.sum() > 0, torch.sin, torch.cos, (x,)), x.mul_(2)),
    "reduced": lambda cond, x: cond(x.sum() > 0, lambda y: y.sum(0), lambda y: y.amax(0), (x,)).sum() + 1,
    "constants": lambda cond, x: cond(x.sum() > 0, lambda: torch.ones(3), lambda: torch.zeros(3)) + 1,
    "inside_another": lambda cond, x: cond(x.sum() > 0, lambda y: cond(y[0, 0] > 1, torch.sin, torch.cos, (y,)), torch.exp, (x,)),
    "inside_another_with_closures": lambda cond, x: (lambda z: cond(x.sum() > 0, lambda y: cond(y[0, 0] > 1, lambda: y + z, lambda: y @ WEIGHT), torch.exp, (x,)) + z)(x * 2),
    "inside_three": lambda cond, x: cond(x.sum() > 0, torch.exp, lambda y: cond(y[0, 0] > 1, torch.sin, lambda z: cond(z[0, 1] > 0, torch.cos, torch.tan, (z,)), (y,)), (x,)),
    "in_a_loop": lambda cond, x: [x := cond(x.sum() > k, lambda y: y - 1, lambda y: y * 2, (x,)) for k in range(3)][-1],
    "writes_inside": lambda cond, x: cond(x.sum() > 0, lambda y: y.clone().add_(1), lambda y: y * 2, (x,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_branches_are_part_of_the_graph(name):
    check(CASES[name], *BOTH)


def test_only_the_chosen_branch_runs():
    def fn(x):
        return frameloom.cond(x.sum() > 0, lambda y: y.sort().values, lambda y: y * 2, (x,))

    jitted = jit_for_test(fn)
    with torch.no_grad():
        for (given,) in (*BOTH, *BOTH):
            with torch.profiler.profile() as seen:
                jitted(given)
            assert ("aten::sort" in [e.name for e in seen.events()]) is bool(given.sum() > 0)


def test_python_bools_choose_at_once():
    check(lambda cond, x: cond(x.shape[0] == 3, lambda y: y, lambda y: y + 1, (x,)) * 2, *BOTH)


def impure(name):
    log = [0]

    def logs(y):
        log[0] += (
            1  # and not one item more: calls of ever longer lists are left to Python, where torch.cond refuses such branches
        )
        return y + 1

    return {
        "objects": logs,
        "tensors": lambda y: y.add_(1) * 1,
        "same": lambda y: y,
        "view": lambda y: y[:],
        "shapes": lambda y: y[:1] + 1,
        "dtypes": lambda y: (y + 1).double(),
        "numbers": lambda y: 3,
        "draws": torch.rand_like,
    }[name]


@pytest.mark.parametrize("name", ["objects", "tensors", "same", "view", "shapes", "dtypes", "numbers", "draws"])  # fmt: skip
def test_other_branches_break(name):
    other = impure(name)

    def fn(cond, x):
        return cond(x.sum() > 0, other, lambda y: y - 1, (x,))

    found = check(fn, *BOTH, graphs=None)
    assert {b.kind for b in found.breaks} == {"data_dependent_branch"}


def test_gradients_go_through_the_branch_that_runs():
    def fn(x, w):
        return frameloom.cond(x.sum() > 0, lambda y: (y * w).sin(), lambda y: y * w * 3, (x,)).sum()

    jitted = jit_for_test(fn)
    for (given,) in BOTH:
        w = torch.randn(4, requires_grad=True)
        (want,), (got,) = (torch.autograd.grad(f(given, w), w) for f in (fn, jitted))
        assert torch.allclose(want, got)


def test_gradients_of_what_only_the_other_branch_reads():
    """They are zeros for torch.cond, and None for a plain `if`."""
    text = """
import torch, frameloom

a, b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

def fn(x):
    return torch.cond(x.sum() > 0, a, b, (x,)) * 2

def same(x):
    return torch.cond(x.sum() > 0, lambda y: a(y), lambda y: y, (x,)) * 2

jitted, refused = frameloom.jit(fn), frameloom.jit(same)
for sign in (1, -1, 1):
    found = []
    for run in (fn, jitted):
        x = (torch.ones(3, 4) * sign).requires_grad_()
        run(x).sum().backward()
        found.append([x.grad, a.weight.grad, b.weight.grad])
        a.zero_grad(), b.zero_grad()
        torch._dynamo.reset()
    for want, got in zip(*found):
        assert torch.equal(want, got), found
for run in (same, refused):
    try:
        run(torch.ones(3, 4))
        raise AssertionError
    except torch._dynamo.exc.UncapturedHigherOrderOpError:
        pass
"""
    fresh.run(text, imported=("torch", "frameloom", "torch._dynamo"), check=True)


def test_beside_gradients():
    def fn(x, w):
        return (frameloom.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * w).sum()

    jitted = jit_for_test(fn)
    for (given,) in (*BOTH, *BOTH):
        w = torch.randn(4, requires_grad=True)
        (want,), (got,) = (torch.autograd.grad(f(given, w), w) for f in (fn, jitted))
        assert torch.allclose(want, got)


@pytest.mark.parametrize("backend", ["eager", lambda gm, examples: gm.forward])
def test_for_other_backends(backend):
    def fn(x):
        return frameloom.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2

    jitted = frameloom.jit(fn, backend=backend)
    for (given,) in BOTH:
        assert torch.allclose(jitted(given), fn(given))


def test_shapes_that_vary():
    def fn(x):
        return frameloom.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2

    jitted = jit_for_test(fn)
    for n in (3, 5, 9, 4):
        for sign in (1, -1):
            y = torch.rand(n, 4) * sign
            assert torch.allclose(jitted(y), fn(y))


def test_errors_are_those_of_torch():
    y = x()
    for args, text in (
        ((torch.tensor([True, False]), torch.sin, torch.cos, (y,)), "single-element"),
        ((torch.tensor(True), 3, torch.cos, (y,)), "callable"),
        ((torch.tensor(True), torch.sin, torch.cos, y), "operands"),
        ((torch.tensor(True), torch.sin, torch.cos, (3,)), "operands"),
        (("yes", torch.sin, torch.cos, (y,)), "bool or tensor"),
    ):
        for cond in CALLS.values():
            for call in (frameloom.cond, frameloom.jit(lambda *a, c=cond: c(*a) * 2)):
                with pytest.raises(RuntimeError, match=text):
                    call(*args)


# --- loops

LOOPS = {
    "count": lambda n, y: torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2), (torch.zeros((), dtype=torch.int64), y)),
    "converge": lambda n, y: torch.while_loop(lambda y: y.abs().max() > n, lambda y: (y / 2,), (y,))[0] + 1,
    "products": lambda n, y: torch.while_loop(lambda i, y: i.sum() < n, lambda i, y: (i + 1, (y @ PRECISE).tanh()), (torch.zeros(1), y))[1],
    "choices": lambda n, y: torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,))), (torch.zeros((), dtype=torch.int64), y)),
    "loops": lambda n, y: torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, torch.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * 2), (i * 0, y))[1] + 1), (torch.zeros((), dtype=torch.int64), y)),
    "unchanged": lambda n, y: torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y), (torch.zeros((), dtype=torch.int64), y)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_part_of_the_graph(name, monkeypatch):
    fn = LOOPS[name]
    jitted = jit_for_test(fn)
    dtype = PRECISE.dtype if name == "products" else WEIGHT.dtype
    calls = [(torch.tensor(k), x().to(dtype)) for k in (3, 1, 5, 0 if name != "converge" else 2)]
    with torch.no_grad():
        got = [observe(jitted, args, {}) for args in calls]
        monkeypatch.setattr(torch, "while_loop", control.while_loop)
        for args, found in zip(calls, got, strict=True):
            want = observe(fn, args, {})
            for a, b in zip(flat(found.result), flat(want.result), strict=True):
                assert torch.allclose(a, b) and a.stride() == b.stride()
                assert all(a.data_ptr() != g.data_ptr() for g in found.arguments[0])
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


def test_loops_that_do_more_break(monkeypatch):
    log = []

    def body(i):
        log.append(1)
        return (i + 1,)

    def fn(y):
        return torch.while_loop(lambda i: i.sum() < 5, body, (y,))[0] * 2

    with torch.no_grad():
        got = jit_for_test(fn)(torch.ones(1))
    assert got.item() == 10 and len(log) == 4


def test_advice_names_what_to_write():
    def fn(x):
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(frameloom.FullGraphError) as found:
        frameloom.jit(fn, fullgraph=True)(x())
    for name in ("torch.where", "torch.cond", "frameloom.cond"):
        assert name in str(found.value)


def test_the_other_compiler_is_not_imported():
    text = """
import sys, torch, frameloom
f = frameloom.jit(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
g = frameloom.jit(lambda x: torch.cond(x.sum() > 0, lambda y: y, torch.cos, (x,)))
f(torch.ones(3)), f(-torch.ones(3)), g(torch.ones(3)), g(-torch.ones(3))
print([m for m in sys.modules if m.startswith(("torch._dynamo", "torch._inductor"))])
"""
    found = fresh.run(text, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_ops_on_the_result_of_a_branch(mode):
    def fn(x):
        y = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
        return y.to(torch.float64).reshape(-1).contiguous()

    with mode():
        made = frameloom.jit(fn, fullgraph=True)(torch.ones(2, 3))
        assert made.equal(fn(torch.ones(2, 3))) and made.dtype is torch.float64


STRUCTURES = {
    "a list": lambda i, x: torch.while_loop(lambda i, x: i > 0, lambda i, x: [i - 1, x + 1], (i, x)),
    "no tuple": lambda i, x: torch.while_loop(lambda i: i > 0, lambda i: i - 1, (i,)),
    "nested": lambda i, x: torch.while_loop(
        lambda i, p: i > 0, lambda i, p: (i - 1, ([p[1]["a"] * 2], {"a": p[0][0] + 1})), [i, ([x], {"a": x + 1})]
    ),
    "matched in order": lambda i, x: torch.while_loop(
        lambda i, p: i > 0, lambda i, p: (i - 1, {"b": p["b"] + 1, "a": p["a"] * 5}), (i, {"a": x, "b": x + 1})
    ),
    "other containers": lambda i, x: torch.while_loop(lambda i, x: i > 0, lambda i, x: ((i - 1,), x + 1), (i, x)),
}  # fmt: skip
ENDS = {
    "a list": lambda k: [torch.tensor(0), torch.ones(2) + k],
    "no tuple": lambda k: torch.tensor(0),
    "nested": lambda k: (torch.tensor(0), [([1.0], {"a": 2.0}), ([4.0], {"a": 2.0}), ([4.0], {"a": 5.0})][k]),
    "matched in order": lambda k: (torch.tensor(0), {"b": [1.0, 3.0, 6.0][k], "a": [2.0, 5.0, 15.0][k]}),
    "other containers": lambda k: ((torch.tensor(0),), torch.ones(2) + k),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_loops_return_what_their_body_returns(name):
    """Also if the body never runs. What is expected is what PyTorch's own compiler computes."""
    jitted = jit_for_test(STRUCTURES[name], fullgraph=True)
    for k in (0, 1, 2):
        got = jitted(torch.tensor(k), torch.ones(2))
        want = torch.utils._pytree.tree_map(
            lambda v: v if isinstance(v, torch.Tensor) else torch.full((2,), v), ENDS[name](k)
        )
        assert str(got) == str(want)


def test_sizes_that_vary_beside_a_choice():
    jitted = jit_for_test(
        lambda x: torch.cond(x.sum() > 4, lambda: x + 1, lambda: x * 2) * x.shape[0], fullgraph=True
    )
    for n in (3, 5, 4, 3, 6):
        x = torch.ones(n)
        assert torch.equal(jitted(x), (x + 1 if n > 4 else x * 2) * n)
