"""Inputs that one result's gradient needs, changed before a backward pass from another: as PyTorch 2.13 tells it, and without its word."""

import weakref

import pytest
import torch

import frameloom
from frameloom.autograd import saved_tensors
from tests.jit.gradients.training import caught, leaf, same_training


@pytest.fixture(params=["told", "compared"])
def way(request, monkeypatch):
    told = request.param == "told" and saved_tensors.HAS_UNPACK
    monkeypatch.setattr(saved_tensors, "HAS_UNPACK", told)


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


@pytest.mark.parametrize("write", [False, True])
def test_results_that_a_library_call_writes_are_as_they_were_saved(way, write):
    """Such a call counts what it writes into the plan's memory."""

    def fn(x, w, b, v):
        return torch.addmm(b, x, w).tanh(), (torch.addmm(b, x, v).tanh() @ v).sum()

    def passes(side):
        x, w, v = (torch.full((3, 3), k / 2, requires_grad=True) for k in (1, 2, 3))
        results = side(x, w, torch.ones(3), v)
        with torch.no_grad():
            v.add_(1)
            if write:
                results[0].mul_(1)
        said = [message(result.sum(), retain_graph=True) is None for result in results]
        return said, x.grad, w.grad, v.grad

    got, want = passes(frameloom.jit(fn)), passes(fn)
    assert got[0] == want[0] == [not write, False]
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


# Nothing of `x` itself is saved by the first of these in plain PyTorch, nor by the last.
CHAINS = {
    "exp": lambda x: x.exp().exp(),
    "of a view": lambda x: x[1:].exp().tanh(),
    "a sum": lambda x: (x + 1).sigmoid().clamp(max=3),
    "saved": lambda x: x.sin(),
    "a product": lambda x: (x + 1) * (x + 2),
}


@pytest.mark.parametrize("first", CHAINS)
@pytest.mark.parametrize("second", CHAINS)
@pytest.mark.parametrize("changed", ["input", "result"])
def test_what_another_result_has_saved_is_not_read(first, second, changed):
    def fn(x):
        y = x * 2
        return y, CHAINS[first](y if changed == "result" else x), CHAINS[second](x)

    def seen(side, which):
        x = torch.linspace(0.1, 0.7, 4, requires_grad=True)
        inner = x * 1
        results = side(inner)
        with torch.no_grad():
            (inner if changed == "input" else results[0]).mul_(2)
        return message(results[which].sum()), x.grad

    for which in (1, 2):
        (said, got), (told, want) = seen(frameloom.jit(fn), which), seen(fn, which)
        assert (said is None) == (told is None)
        if want is not None:
            torch.testing.assert_close(got, want)


WRITES = {
    "exp": lambda t: t[0].exp_(),
    "relu of a transposed one": lambda t: t.t().relu_(),
    "sigmoid of all": lambda t: t.view(-1).sigmoid_(),
    "nothing saved": lambda t: t[0].mul_(2),
}


@pytest.mark.parametrize("part", [lambda t: t, lambda t: t[1], lambda t: t.view(-1)])
@pytest.mark.parametrize("name", WRITES)
def test_a_result_that_an_op_on_a_view_saves(name, part):
    """In eager the node that puts the view's new values into its base hides what the op has saved."""

    def fn(x):
        t = x * 1
        WRITES[name](t)
        return part(t)

    def seen(side, changes):
        x = torch.full((3, 3), 0.5, requires_grad=True)
        result = side(x)
        if changes:
            with torch.no_grad():
                result.mul_(2)
        return message(result.sum()) is None, x.grad

    for changes in (False, True):
        (passes, got), (expected, want) = (seen(f, changes) for f in (frameloom.jit(fn), fn))
        assert passes == expected
        if want is not None:
            torch.testing.assert_close(got, want)


WRITES_THAT_READ = {
    "a product": lambda t, y: t[1].mul_(y[1]),
    "a sum": lambda t, y: t[1].add_(y[1]),
    "copied": lambda t, y: t[1].copy_(y[1]),
    "places": lambda t, y: t[1:].index_add_(0, torch.tensor([1, 0]), y[1:], alpha=2),
    "clamped": lambda t, y: t.view(-1).clamp_(max=y.max()),
    "a matrix": lambda t, y: t[1:].addmm_(y[:2], y),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", WRITES_THAT_READ)
def test_what_an_op_on_a_view_reads_and_saves(name, dynamic):
    """Also for the gradient of what leads to nothing that the program has."""

    def fn(x):
        t = torch.ones(3, 3).requires_grad_() * 1
        y = x * 2
        WRITES_THAT_READ[name](t, y)
        return t, y

    def seen(side, changes):
        x = torch.arange(9.0).view(3, 3).requires_grad_()
        result, y = side(x)
        if changes:
            with torch.no_grad():
                y.mul_(2)
        return message(result.sum()) is None, x.grad

    jitted = frameloom.jit(fn, dynamic=dynamic)
    for changes in (False, True):
        (passes, got), (expected, want) = (seen(f, changes) for f in (jitted, fn))
        assert passes == expected
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("fn", [lambda x: x.var(0), lambda x: x.std(), lambda x: torch.var(x, 1)])
def test_a_variance_of_any_sizes_saves_its_tensor(fn):
    def seen(side, n, changes):
        x = torch.arange(3.0 * n).view(n, 3).requires_grad_()
        inner = x * 1
        result = side(inner)
        if changes:
            with torch.no_grad():
                inner.mul_(2)
        return message(result.sum()) is None, x.grad

    jitted = frameloom.jit(fn, dynamic=True)
    for n, changes in ((3, False), (4, True), (5, False), (5, True)):
        (passes, got), (expected, want) = (seen(f, n, changes) for f in (jitted, fn))
        assert passes == expected
        if want is not None:
            torch.testing.assert_close(got, want)


MOMENTS = [
    lambda x: x.var(),
    lambda x: x.var(-1, keepdim=True),
    lambda x: torch.var(x, (0, 1), unbiased=False),
    lambda x: x.std(0, correction=0),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fn", MOMENTS)
def test_derivatives_of_moments_of_any_sizes_round_and_overflow_as_eagers(fn, dtype):
    jitted = frameloom.jit(fn, dynamic=True, backend="eager")
    whole = torch.arange(12.0).view(3, 4) + 0.3
    infinite, same = whole.clone(), torch.full((3, 4), 1.25)
    infinite[1, 2] = float("inf")
    for given in (whole, infinite, whole * 100, same):
        found = []
        for side in (fn, jitted):
            x = given.to(dtype).requires_grad_()
            side(x).sum().backward()
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-6, equal_nan=True)


REPLACED = {
    "as it lay": lambda: torch.arange(9.0).view(3, 3),
    "otherwise": lambda: torch.arange(9.0).view(3, 3).t(),
    "repeated": lambda: torch.ones(1).expand(3, 3),
    "fewer bytes": lambda: torch.ones(3, 3, dtype=torch.bfloat16),
    "more bytes": lambda: torch.ones(3, 3, dtype=torch.float64),
    "broadcast": lambda: torch.ones(3, 1),
    "nothing": lambda: torch.ones(0),
    "one number": lambda: torch.ones(()),
    "larger": lambda: torch.ones(300, 300),
}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_other_memory_in_the_place_of_an_input(name, sized, compiled):
    """Which a backward pass has to look at: autograd counts no change."""
    fn = frameloom.jit(lambda x, w: (x * w).exp(), dynamic=sized)

    def passes(side, replaced):
        w = torch.nn.Parameter(torch.full((3, 3), 0.5))
        x = torch.ones(3, 3, requires_grad=True)
        result = side(x, w).sum()
        if replaced:
            w.data = REPLACED[name]()
        said = message(result)
        return (said,) if said else (said, x.grad, w.grad)  # how far it came is up to autograd

    if compiled:
        passes(fn, False)
    got, want = passes(fn, True), passes(fn.__wrapped__, True)
    assert got[0] == want[0]
    for a, b in zip(got[1:], want[1:], strict=True):
        assert (a is None) == (b is None) and (a is None or torch.allclose(a, b))


OF_VIEWS = {
    "linear": lambda x, w: torch.nn.functional.linear(x, w),
    "transposed": lambda x, w: x @ w.t(),
    "a row": lambda x, w: x * w[0],
    "itself": lambda x, w: x @ w,
    "a result": lambda x, w: w.exp() * x,
    "checkpointed": lambda x, w: torch.utils.checkpoint.checkpoint(
        torch.nn.functional.linear, x, w, use_reentrant=False
    ),
}


@pytest.mark.parametrize("name", OF_VIEWS)
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("sized", [False, True])
def test_what_is_put_into_the_place_of_a_leaf(name, again, sized):
    """Eager's nodes see it where they have saved the leaf itself, and not where a view of it: as in a step written out, `w.data = w.data - ...`."""

    def passes(side):
        w = torch.nn.Parameter(torch.linspace(-1, 1, 9).view(3, 3))
        x = torch.linspace(0.1, 1, 9).view(3, 3).requires_grad_()
        found = []
        for _ in range(2):
            result = side(x, w)
            loss = (result * result).sum()
            if again:
                found += torch.autograd.grad(loss, (x, w), retain_graph=True, create_graph=True)
                loss = loss + sum(g.pow(2).sum() for g in found[-2:])
            w.data = w.data.t() * 2
            loss.backward()
            found += [x.grad, w.grad]
            x.grad = w.grad = None
        return found

    got, want = (passes(side) for side in (frameloom.jit(OF_VIEWS[name], dynamic=sized), OF_VIEWS[name]))  # fmt: skip
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_a_leaf_that_is_saved_dies_with_the_pass():
    def program(x, w):
        return torch.nn.functional.linear(x.t(), w)

    for fn in (program, frameloom.jit(program)):
        x = torch.ones(3, 3)
        seen = weakref.ref(x)
        result = fn(x, torch.nn.Parameter(torch.ones(3, 3)))
        result.sum().backward()
        del x
        assert seen() is None


@pytest.mark.parametrize("first", range(2))
@pytest.mark.parametrize("changed", range(2))
def test_a_pass_that_meets_what_was_changed_and_what_was_let_go_of(first, changed):
    """Of two errors of autograd, that of what was computed last comes."""

    def program(jit):
        x = leaf(3)
        results = jit(lambda x: ((x * 2).sin().exp(), (x * 3).cos().exp()))(x)
        results[first].sum().backward()
        results[changed].detach().mul_(2)
        error = caught(lambda: (results[0] + results[1]).sum().backward())
        return error[0], error[1][:60], x.grad

    same_training(program)


PARTS = {
    "beside": lambda base: (base[:3], base[3:]),
    "without elements": lambda base: (base[:3], base[6:]),
    "of the whole": lambda base: (base, base[6:]),
    "of a detached tensor": lambda base: (base[:3], base.detach()[3:]),
}
AFTER = {
    "add_": lambda x, y, w: (x * w, y.add_(1))[0],
    "a list": lambda x, y, w: (x * w, torch._foreach_add_([y], 1))[0],
}


@pytest.mark.parametrize("fn", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_write_to_another_part_of_what_is_saved(parts, fn):
    def program(jit):
        f, seen = jit(fn), []
        for _ in range(2):
            x, y = parts(torch.ones(6))
            error = caught(f(x, y, leaf(1)).sum().backward)
            seen.append((error and error[0], x._version))
        return seen

    same_training(program, plain=None)


@pytest.mark.parametrize("given", ["leaves", "histories"])
def test_a_gradient_with_a_history_where_another_result_was_changed(way, given):
    """It is computed anew, of what was given."""

    def fn(x, w):
        results = (x * w).pow(2), w.sigmoid()
        print(end="")
        results[1].fill_(2)
        found = torch.autograd.grad(results[0].sum(), w, create_graph=True)
        return *found, *torch.autograd.grad(found[0].sum(), (x, w))

    def seen(side):
        x, w = (torch.linspace(k, 3, 4, requires_grad=True) for k in (1, 2))
        return side(x, w) if given == "leaves" else side(x * 2, w.exp())

    got, want = seen(frameloom.jit(fn)), seen(fn)
    assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_a_number_is_saved_where_a_part_of_an_input_is_written():
    def fn(x, y, factor):
        y.add_(1)
        return x.sin() * factor

    def seen(side):
        found = []
        for factor in (2.5, 3.5, 4.5):
            x = torch.ones(3, requires_grad=True)
            side(x, torch.ones(3), factor).sum().backward()
            found.append(x.grad.tolist())
        return found

    assert torch.allclose(
        *(torch.tensor(seen(side)) for side in (frameloom.jit(fn, dynamic=True), fn))
    )


@pytest.mark.parametrize("budget", [0, 0.5])
def test_a_weight_that_another_result_saves_is_changed(budget):
    """Eager's pass for the layer does not read the first weight, so that it minds no change: nor may what is computed again."""
    layer = torch.nn.Linear(3, 3)

    def fn(w, x):
        squares = w.square()
        layer(x @ w).sum().backward()
        made = layer(x @ w)
        print(end="")
        with torch.no_grad():
            w.sub_(w.grad)
        return made, squares

    def seen(f):
        w = torch.full((3, 3), 0.5, requires_grad=True)
        layer.zero_grad()
        f(w, torch.ones(4, 3))[0].sum().backward()
        return [w.grad.tolist(), *(p.grad.tolist() for p in layer.parameters())]

    f = frameloom.jit(fn, options={"memory_budget": budget})
    assert [seen(f) for _ in range(2)] == [seen(fn)] * 2
