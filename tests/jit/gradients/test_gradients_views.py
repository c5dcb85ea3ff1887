"""A result with a history that is a view of what nobody else sees stays a view: of a tensor like eager's, made by the same op."""

import pytest
import torch
import torch.nn.functional as F

import frameloom

VIEWS = {
    "t": lambda x: (x + 1).t(),
    "slice": lambda x: (x + 1)[1:],
    "slice of a slice": lambda x: (x + 1)[1:][:, :2],
    "index": lambda x: (x * 2)[0, 1],
    "expand": lambda x: (x * 2).sum(0).expand(3, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "squeeze": lambda x: x.mean(0, keepdim=True).squeeze(),
    "real": lambda x: torch.complex(x, x).real,
    "view_as_real": lambda x: torch.view_as_real(torch.complex(x, x)),
    "view of a product": lambda x: F.linear(x[None], torch.ones(4, 3)).view(-1),
    "written": lambda x: (x * 2)[1:].add_(1),
    "of its base, written": lambda x: (lambda t: (t[1:], t.add_(1))[0])(x * 2),
}
NONE = {
    "product": lambda x: F.linear(x[None], torch.ones(4, 3)),
    "contiguous": lambda x: (x * 2).t().contiguous(),
}
ALL = {**VIEWS, **NONE}


def seen(fn, rows):
    x = torch.arange(3.0 * rows).view(rows, 3).requires_grad_()
    t = fn(x)
    base = t._base
    facts = [t._is_view(), base is None, t.stride(), t.storage_offset(), t.tolist()]
    if base is not None:
        facts += [base.shape, base.stride()]
    t.sum().backward()
    return [*facts, t.untyped_storage().nbytes(), None if x.grad is None else x.grad.tolist()]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ALL)
def test_a_result_is_the_view_that_it_is_plainly(name, dynamic):
    jitted = frameloom.jit(ALL[name], dynamic=dynamic)
    for rows in (2, 4, 4):
        assert seen(jitted, rows) == seen(ALL[name], rows)


@pytest.mark.parametrize("name", VIEWS)
def test_its_base_is_asked_for(name):
    def fn(x):
        t = VIEWS[name](x)
        return t._base is None, t._is_view(), t

    x = torch.arange(6.0).view(2, 3).requires_grad_()
    assert frameloom.jit(fn)(x)[:2] == fn(x)[:2]


def test_its_base_is_asked_for_behind_a_break():
    def fn(x):
        t = x.repeat_interleave(2, 0)
        frameloom.graph_break()
        return t._base is None, t._is_view()

    x = torch.ones(3, requires_grad=True)
    assert frameloom.jit(fn)(x) == fn(x)


@pytest.mark.parametrize("write", [torch.Tensor.zero_, lambda v: v.mul_(2)])
def test_it_was_written_to_and_comes_from_another_result(write):
    def fn(x):
        y = x * 1
        view = (y * 2)[1:]
        write(view)
        return y, view

    found = []
    for side in (fn, frameloom.jit(fn), frameloom.jit(fn, backend="eager")):
        x = torch.arange(6.0).view(3, 2).requires_grad_()
        y, view = side(x)
        y.retain_grad()
        (view * 3).sum().backward()
        facts = view._is_view(), view._base is not None and view._base.shape
        found.append((*facts, y.grad.tolist(), x.grad.tolist()))
    assert found[1:] == [found[0]] * 2


def test_another_result_comes_from_it():
    """Its hooks are called with what comes from there, too."""

    def fn(x):
        t = (x * 2).t()
        return t, t * 3

    found = []
    for side in (fn, frameloom.jit(fn)):
        x = torch.arange(6.0).view(2, 3).requires_grad_()
        t, other = side(x)
        t.register_hook(lambda g: found.append(g.tolist()))
        (t.sum() + other.sum()).backward()
        found.append(x.grad.tolist())
    assert found[:2] == found[2:]


@pytest.mark.parametrize("backend", [None, "eager", lambda module, examples: module.forward])
def test_a_view_behind_a_break_gets_a_history(backend):
    def fn(x, y):
        v = x.t()
        frameloom.graph_break()
        v.copy_(y)

    def run(side):
        x, y = torch.ones(2, 3), torch.ones(3, 2, requires_grad=True)
        side(x, y)
        (x * 2).sum().backward()
        return x.tolist(), y.grad.tolist()

    assert run(frameloom.jit(fn, backend=backend)) == run(fn)


WEIGHT = torch.nn.Parameter(torch.ones(3))


@pytest.mark.filterwarnings("error:.*failed inside")
def test_views_of_what_is_written_from_a_history_that_is_used_up():
    """Their histories are made anew while the compiler looks for what the used one is read by."""

    def fn(x):
        flat = x.flatten()
        loss = x * WEIGHT.sum()
        loss.backward()
        for _ in range(2):
            flat.copy_(loss)
            flat[0]
        loss.expand(2, 1)[0].add_(1)

    x, y = torch.zeros(()), torch.zeros(())
    fn(x)
    frameloom.jit(fn)(y)
    assert torch.equal(x, y)


@pytest.mark.filterwarnings("error")  # one says that a function runs plainly
def test_a_view_of_what_is_written_behind_it():
    def fn(x):
        r = x * 2
        t = r[1:]
        r *= x
        return t

    found = []
    for side in (fn, frameloom.jit(fn)):
        x = torch.arange(4.0, requires_grad=True)
        t = side(x)
        (t * t).sum().backward()
        found.append((t.tolist(), t._is_view(), x.grad.tolist()))
    assert found[0] == found[1]


def test_a_view_of_what_was_given_other_memory():
    """Its base has the memory from before."""

    def program(x, y):
        x.set_(y)
        x[1:].add_(1)
        return x[2:]

    for fn in (program, frameloom.jit(program, backend="eager")):
        y = torch.arange(4.0)
        assert fn(torch.zeros(1).expand(3), y).tolist() == [3, 4]
        assert y.tolist() == [0, 2, 3, 4]


def _written(x, of, made_before):
    base = x * 2
    view = base[1:]
    part = view[1:]
    {"base": base, "view": view, "part": part}[of].mul_(3)
    return view, part if made_before else view[1:]


# Results of which some are views, of what nobody else sees, and others are computed from these.
SEVERAL = {
    "a view and what is computed from it": lambda x: (lambda v: (v, v * 2))((x * 2)[1:]),
    "a view of a view": lambda x: (lambda v: (v, v.t()))((x * 2)[1:]),
    "transposed twice": lambda x: (lambda v: (v.t(), v.t().t(), v.abs()))((x * 2)[1:]),
    "parts of a view": lambda x: (lambda v: (v[1:], v[:1], v[1:].abs()))((x * 2)[1:]),
    "of one memory each": lambda x: (lambda v: (v, (v * 3)[0], (v * 3)[0] * 2))((x * 2).t()),
    "expanded": lambda x: (lambda v: (v, v * 2))((x * 2).expand(2, *x.shape)),
    "squeezed": lambda x: (lambda v: (v.mT, v[0] * 2, v[0]))((x * 2).squeeze().unsqueeze(0)),
    "real parts": lambda x: (lambda v: (v, v * 2))(torch.complex(x, x).real),
    "base written": lambda x: _written(x, "base", True),
    "view written": lambda x: _written(x, "view", True),
    "part written": lambda x: _written(x, "part", True),
}
# ... which are told to be views of something else than eager's.
LEADS_ON = {
    "base written before": lambda x: _written(x, "base", False),
    "view written before": lambda x: _written(x, "view", False),
}


def between(results):
    """The gradients between results."""
    found = []
    for y in results:
        for z in results:
            (gradient,) = torch.autograd.grad(y.sum(), z, retain_graph=True, allow_unused=True)
            found.append(None if gradient is None else gradient.tolist())
    return found


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SEVERAL | LEADS_ON)
def test_views_beside_what_is_computed_from_them(name, dynamic):
    fn = (SEVERAL | LEADS_ON)[name]

    def told(side, rows):
        x = torch.arange(3.0 * rows).view(rows, 3).mul_(0.125).requires_grad_()
        results = side(x)
        facts = [between(results)]
        for t in results:
            t.retain_grad()
        sum(t.sum() for t in results).backward()
        facts += [(t.grad if t.grad is None else t.grad.tolist(), t.stride()) for t in results]
        if name in SEVERAL:
            facts += [t._is_view() and t._base.shape for t in results]
        return [*facts, x.grad.tolist()]

    jitted = frameloom.jit(fn, dynamic=dynamic)
    for rows in (3, 4, 4):
        assert told(jitted, rows) == told(fn, rows)


STRIDED = {
    "of a view": lambda z: z[:, 1:].as_strided((2,), (1,)),
    "of what has the same start": lambda z: z.squeeze(0).as_strided((2, 2), (1, 1)),
    "of another such": lambda z: z[0].as_strided((2,), (1,)).as_strided((1,), (1,)),
    "of a new tensor": lambda z: (z * 2)[:, 1:].as_strided((2,), (1,)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", STRIDED)
def test_as_strided_of_views_of_inputs_that_start_somewhere(name, requires_grad, dynamic):
    def fn(z, w):
        return STRIDED[name](z), z * 2, w * 2

    jitted = frameloom.jit(fn, dynamic=dynamic)
    w = torch.ones(2, requires_grad=True)
    for start in (1, 2, 0):
        found = []
        for side in (jitted, fn):
            x = torch.arange(18.0).view(3, 2, 3).requires_grad_(requires_grad) * 1
            v, *_ = side(x[start : start + 1], w)
            found.append((v.tolist(), v.storage_offset(), v._is_view()))
        assert found[0] == found[1]


@pytest.mark.parametrize("backend", [None, "eager"])
def test_what_is_written_through_a_view_is_no_view(backend):
    def fn(x):
        t = x * 2
        t.view(-1).mul_(3)
        return t

    assert not frameloom.jit(fn, backend=backend)(torch.ones(2, 2))._is_view()
