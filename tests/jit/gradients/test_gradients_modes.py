"""Gradient modes around and inside compiled calls."""

import pytest
import torch

from frameloom import jit
from tests.jit.gradients.training import facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


def scaled(x, w):
    with torch.no_grad():
        scale = (x @ w).abs().max()
    return (x @ w) / scale


def turned_on(x, w):
    with torch.enable_grad():
        y = (x @ w).exp()
    return y, y * 2, w.view(-1)


def turned_off_and_on(x, w):
    y = x @ w
    with torch.no_grad():
        z = y * 2
        with torch.enable_grad():
            v = z * w[0] + y
    return y, z, v


def inference_inside(x, w):
    with torch.inference_mode():
        m = (x @ w).amax()
    return x @ w, m


def detached(x, w):
    y = x @ w
    return y * y.detach() + w.detach().sum()


def straight_through(x, w):
    y = x @ w
    return y + (y.round() - y).detach()


def left_off(x, w):
    y = x @ w
    torch.set_grad_enabled(False)
    return y, y * 2


FUNCTIONS = [
    scaled,
    turned_on,
    turned_off_and_on,
    inference_inside,
    detached,
    straight_through,
    left_off,
]


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_modes(fn, mode):
    def program(jit):
        f = jit(fn)
        x, w = torch.randn(4, 8), leaf(8, 8)
        seen = []
        for _ in range(2):
            with mode():
                out = f(x, w)
                seen.append(torch.is_grad_enabled())
            torch.set_grad_enabled(True)
            outs = out if isinstance(out, tuple) else (out,)
            for o in outs:
                if o.requires_grad and o.grad_fn is not None:
                    o.sum().backward(retain_graph=True)
            seen.append(facts(*outs, w))
        return seen

    same_training(program, plain=None)


def test_modes_that_change_between_calls():
    def program(jit):
        f = jit(lambda x, w: torch.tanh(x @ w))
        x, w = torch.randn(4, 8), leaf(8, 8)
        seen = []
        for on in (True, False, True, False):
            with torch.set_grad_enabled(on):
                out = f(x, w)
            if on:
                out.sum().backward()
            seen.append(facts(out, w))
        return seen

    same_training(program)


def caught(x, w):
    try:
        return x @ w
    except RuntimeError:
        return w + 1


def unused(x, w):
    x @ w
    return w + 1


def of_a_view(x, w):
    return x.view(-1)[:4] * w[0, :4]


@pytest.mark.parametrize("fn", [caught, unused, of_a_view])
def test_inference_tensors_that_autograd_refuses_to_save(fn):
    with torch.inference_mode():
        x = torch.ones(4, 8)
    w = torch.ones(8, 8, requires_grad=True)

    def told(fn):
        try:
            return fn(x, w).tolist()
        except RuntimeError as error:
            return str(error)

    assert told(jit(fn)) == told(fn)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: torch.softmax(x @ w, -1) @ w,
        lambda x, w: torch.nn.functional.group_norm(x @ w, 1, w[0, :5].exp()),
        lambda x, w: torch.nn.functional.conv1d(x, w[:, :5, None]).prod(1),
    ],
    ids=["attention", "group_norm", "convolution"],
)
@pytest.mark.parametrize("forward", [False, True])
def test_backward_pass_under_autocast(fn, forward):
    """What it casts, autograd casts back: each gradient is of the dtype of what it is the gradient of."""

    def gradients(fn):
        torch.manual_seed(0)
        x, w = torch.rand(3, 5, 7).requires_grad_(), torch.rand(7, 7).requires_grad_()
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=forward):
                made = fn(x, w).float().exp().mean()
            with torch.autocast("cpu", torch.bfloat16):
                made.backward()
        return x.grad, w.grad

    torch.testing.assert_close(gradients(jit(fn)), gradients(fn), rtol=2e-2, atol=2e-3)


def beside_inference(x):
    with torch.inference_mode():
        made = x[:2] + 1
    other = made * 2
    view = other.view(-1)
    view.data_ptr()  # breaks the graph
    return view, made


def test_a_view_beside_a_tensor_of_inference_mode_can_be_written():
    """It was taken for one that was made without gradient mode."""

    def written(f):
        view, made = f(torch.ones(3))
        view.mul_(torch.ones(2, requires_grad=True))
        return view.requires_grad, made.is_inference(), view.tolist()

    f = jit(beside_inference)
    assert [written(f) for _ in range(2)] == [written(beside_inference)] * 2
