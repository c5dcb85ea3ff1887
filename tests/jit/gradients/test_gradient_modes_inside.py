"""Blocks that turn gradients off or on hold for everything in them: kernels, library calls and views, of leaves and of what has a history."""

import pytest
import torch

import frameloom
from tests.observe import assert_same_call, observe

OPS = {
    "kernel": lambda x: x * 2,
    "product": lambda x: x @ x,
    "sort": lambda x: x.sort(0)[0],
    "kthvalue": lambda x: x.kthvalue(1).values,
    "determinant": lambda x: torch.linalg.det(x + torch.eye(3)),
    "matrix_exp": lambda x: torch.matrix_exp(x),
    "convolution": lambda x: torch.conv1d(x[None], x[:, :, None]),
    "transposed": lambda x: x.t(),
    "row": lambda x: x[1],
    "slice": lambda x: x[1:, ::2],
    "flat": lambda x: x.view(-1),
    "diagonal": lambda x: x.diagonal(),
    "pieces": lambda x: x.split(2)[0],
    "detached": lambda x: x.detach(),
    "view_of_detached": lambda x: x.detach()[1:],
    "view_of_view": lambda x: x.t()[1:].unsqueeze(0),
    "real": lambda x: torch.view_as_real(x.to(torch.complex64)),
    "own_bits": lambda x: x.view(torch.float32),
    "itself": lambda x: x,
}
MODES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "enable_grad": torch.enable_grad,
}


@pytest.fixture(autouse=True)
def _no_notices(monkeypatch):
    """What runs plainly says so; this is about what it computes."""
    monkeypatch.setattr(
        "frameloom.debug._noticed", type("All", (), {"__contains__": lambda *_: True})()
    )


def backward(results):
    """Gradients of what requires them."""
    tensors = (t for t in results if isinstance(t, torch.Tensor) and not t.is_inference())
    loss = sum((t * t).sum().abs() for t in tensors if t.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()


def agree(f, make, outside=True):
    jitted = frameloom.jit(f)

    def use(fn):
        def call(*args):
            results = fn(*args)
            backward(results)
            leaves = (t for t in results if isinstance(t, torch.Tensor) and t.is_leaf)
            return results, [t.grad for t in leaves if not t.is_inference()]

        return call

    for _ in range(2):
        want, got = observe(use(f), make, grad=outside), observe(use(jitted), make, grad=outside)
        assert_same_call(got, want, "")


def leaf():
    return (torch.arange(9.0).reshape(3, 3).div(9).requires_grad_(),)


def with_history():
    return (leaf()[0] * 2,)


@pytest.mark.parametrize("make", [leaf, with_history])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPS)
def test_mode_around_an_op(name, mode, make):
    op = OPS[name]

    def of_input(x):
        with MODES[mode]():
            v = op(x)
        return v, x + 1

    def of_intermediate(x):
        h = x * 3
        with MODES[mode]():
            v = op(h)
        return (v,)

    def beside_what_follows(x):
        h = x.sin()
        with MODES[mode]():
            v = op(h)
        return v, (h * 2).sum(), h

    def used(x):
        with MODES[mode]():
            v = op(x)
            w = v.sum()
        return (w, x * w) if mode != "inference" else (w,)

    for f in (of_input, of_intermediate, beside_what_follows, used):
        agree(f, make)
        agree(f, make, outside=False)


@pytest.mark.parametrize("mode", ["no_grad", "enable_grad"])
@pytest.mark.parametrize("name", OPS)
def test_mode_around_an_op_before_a_break(name, mode):
    op = OPS[name]

    def f(x):
        h = x * 1
        with MODES[mode]():
            v, w = op(x), op(h)
        print("break")
        return v * 2, w * 2, h * 2

    agree(f, leaf)
    agree(f, leaf, outside=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPS)
def test_what_follows_a_block_with_a_break(name, mode):
    """Where the part behind the break begins, the mode is another one than what it makes last is made in."""
    op = OPS[name]

    def f(x):
        with MODES[mode]():
            print(end="")
            v = op(x) + 1
        return v, op(x), x * 2, (x + 1)[1:]

    agree(f, leaf)
    agree(f, leaf, outside=False)


BITS = {
    "asked": lambda v: (v.is_inference(), v[1:].is_inference(), v._base is None),
    "computed": lambda v: v + 1,
    "written": lambda v: v.add_(1),
    "a leaf": lambda v: v.requires_grad_(),
    "in_a_product": lambda v: v * torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("use", BITS)
def test_elements_of_another_dtype_behind_inference_mode(use, given):
    """They are no inference tensor's, though their memory was made as one."""

    def fn(x):
        with torch.inference_mode():
            t = x.t().contiguous()
        if not given:
            v = t.view(torch.int32)
        else:
            frameloom.graph_break()
            v = t.view(torch.int32)
        try:
            made = BITS[use](v)
        except RuntimeError as error:
            return str(error), x + 1
        return made, x + 1

    agree(fn, lambda: (torch.arange(12.0).view(3, 4).t()[:3],), outside=False)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("use", BITS)
def test_elements_of_another_dtype_in_inference_mode(use, given, dtype):
    """They are an inference tensor's, whatever memory they lie in."""

    def fn(x):
        t = x if given else x * 1
        with torch.inference_mode():
            v = t.view(dtype)
        try:
            made = BITS[use](v)
        except RuntimeError as error:
            return str(error), x + 1
        return made, x + 1

    agree(fn, lambda: (torch.ones(3, 3),))


def views_of_an_input_that_is_changed(x):
    part = x[1:]
    x.unsqueeze_(0)
    return part


VIEWS_IN_INFERENCE_MODE = [
    views_of_an_input_that_is_changed,
    lambda x: (x[1:], x * 2)[0],
    lambda x: (x[1:], x.t(), x * 2)[1],
    lambda x: x[1:].detach(),
]


@pytest.mark.parametrize("has_history", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("fn", VIEWS_IN_INFERENCE_MODE)
def test_a_refused_write_tells_the_mode_of_a_view(fn, inside, has_history):
    def within(x):
        with torch.inference_mode(inside):
            return fn(x)

    found = []
    for side in (within, frameloom.jit(within, backend="eager")):
        w = torch.ones(3, 3, requires_grad=True)
        x = w * 2 if has_history else torch.ones(3, 3)
        with torch.inference_mode(not inside):
            view = side(x)
        try:
            view.mul_(w.sum())
            found.append("taken")
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("convert", [torch.Tensor.bfloat16, torch.Tensor.double, torch.Tensor.sin])
def test_a_call_that_begins_in_inference_mode(convert):
    def fn(x):
        with torch.inference_mode():
            n = float(x.abs().sum() > 1e9)  # what follows is called here
        return convert(x * (1 + n))

    grads = []
    for side in (fn, frameloom.jit(fn)):
        x = torch.ones(1, 3, requires_grad=True)
        side(x).sum().backward()
        grads.append(x.grad)
    assert torch.allclose(*grads)


SEVERAL = {
    "unbind": lambda t: t.unbind(0),
    "split": lambda t: t.split(1),
    "views of chunks": lambda t: [c.view(-1) for c in t.chunk(2)],
    "parts of chunks": lambda t: [c[0] for c in t.chunk(2)],
    "one part": lambda t: [t[:1]],
}


@pytest.mark.parametrize("backend", ["frameloom", "eager"])
@pytest.mark.parametrize("result", ["alone", "with its base"])
@pytest.mark.parametrize("base", ["given", "made", "written"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", SEVERAL)
def test_views_that_one_op_gives_tell_so_where_a_write_is_refused(
    name, grad, base, result, backend
):
    def fn(x):
        y = x if base == "given" else x * 1
        with torch.set_grad_enabled(grad):
            part = SEVERAL[name](y)[0]
        if base == "written":
            y.add_(1)
        return part if result == "alone" else (part, y)

    found = []
    for side in (fn, frameloom.jit(fn, backend=backend)):
        made = side(torch.ones(2, 2))
        part = made if result == "alone" else made[0]
        try:
            part.mul_(torch.ones(1, requires_grad=True))
            found.append("taken")
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("made_there", [False, True])
def test_views_of_an_input_that_requires_gradients(inside, made_there):
    """Those of a tensor of inference mode do not."""

    def fn(x):
        parts = x[0], x.t(), x.unbind(0)[0]
        return x * 1, *parts, *[p.requires_grad for p in parts]

    found = []
    for side in (fn, frameloom.jit(fn)):
        with torch.inference_mode(made_there):
            x = torch.ones(2, 2).requires_grad_()
        with torch.inference_mode(inside):
            made = side(x)
        found.append([*made[4:], *[t.requires_grad for t in made[:4]]])
    assert found[0] == found[1]
