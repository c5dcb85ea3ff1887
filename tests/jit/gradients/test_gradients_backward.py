"""Ways to ask for gradients of compiled calls: some outputs, some inputs, twice, without `backward`."""

import pytest
import torch

from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


def three(x, w, b):
    """Two outputs with a common part, and one of its own."""
    h = torch.tanh(x @ w)
    return h.exp(), h * b, (b * b).exp()


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_some_outputs(which):
    def program(jit):
        f = jit(three)
        x, w, b = torch.randn(4, 8), leaf(8, 8), leaf(8)
        seen = []
        for _ in range(2):
            w.grad = b.grad = None
            outs = f(x, w, b)
            sum(outs[k].sum() for k in which).backward()
            seen.append(facts(w, b))
        return seen

    same_training(program, graphs=1)


@pytest.mark.parametrize(
    "order", [(0, 1), (0, 2), (2, 0), (2, 1), (1, 2), (0, 0), (2, 2), (2, 0, 2)]
)
@pytest.mark.parametrize("keep", [False, True])
def test_one_output_after_the_other(order, keep):
    def program(jit):
        f = jit(three)
        x, w, b = torch.randn(4, 8), leaf(8, 8), leaf(8)
        seen = []
        for _ in range(2):
            outs = f(x, w, b)
            for k in order:
                seen.append(caught(outs[k].sum().backward, retain_graph=keep))
            if seen[-1] is None:  # where it fails, eager has gone a part of the way
                seen.append(facts(w, b))
        return seen

    same_training(program, graphs=1)


def test_a_missing_gradient_is_not_zeros():
    def program(jit):
        f = jit(lambda x: (x.log().sqrt(), x * 2))
        for _ in range(2):
            x = torch.zeros(3, requires_grad=True)
            f(x)[1].sum().backward()
        return facts(x)

    same_training(program)


def test_a_missing_gradient_of_repeated_elements():
    def program(jit):
        f = jit(lambda x, y, w: (x * w.sum(), y * w.sum(), x + w.sum(0), y[:1] + w.sum(0)))
        seen = []
        for which in range(4):
            w = leaf(3, 3)
            f(torch.ones(3, 3), torch.ones(2), w)[which].sum().backward()
            seen.append(facts(w))
        return seen

    same_training(program)


def test_a_changed_tensor_is_noticed_after_part_of_a_backward_pass():
    def program(jit):
        f = jit(lambda x, y: (x.exp() * 2, y.exp() * y))
        seen = []
        for _ in range(2):
            x, y = leaf(3), leaf(3)
            z = y * 1
            a, b = f(x, z)
            a.sum().backward()
            with torch.no_grad():
                z.add_(1)
            seen.append((type(caught(b.sum().backward)), facts(x, y)))
        return seen

    same_training(program)


def test_some_inputs():
    def program(jit):
        f = jit(three)
        x, w, b = leaf(4, 8), leaf(8, 8), leaf(8)
        seen = []
        for _ in range(2):
            outs = f(x, w, b)
            torch.autograd.backward([o.sum() for o in outs], inputs=[b], retain_graph=True)
            seen.append(torch.autograd.grad(outs[1].sum(), [x, b], retain_graph=True))
            seen.append(
                torch.autograd.grad(outs[0].sum(), [x, b], allow_unused=True, retain_graph=True)
            )
            seen.append(caught(torch.autograd.grad, outs[0].sum(), [x, b], retain_graph=True))
            seen.append(torch.autograd.grad(outs, [w], [torch.ones_like(o) for o in outs]))
            seen.append(facts(x, w, b))
        return seen

    same_training(program)


def test_twice():
    def program(jit):
        f = jit(lambda w: w.exp().sin())
        w = leaf(5)
        seen = []
        for _ in range(2):
            out = f(w).sum()
            out.backward(retain_graph=True)
            out.backward()
            seen += [facts(w), caught(out.backward)]
        return seen

    same_training(program)


def test_gradients_that_lie_otherwise():
    def program(jit):
        f = jit(lambda x, w: x @ w)
        x, w = leaf(4, 4), leaf(4, 4)
        g = torch.randn(4, 4)
        for given in (g, g.t(), g[:1].expand(4, 4), torch.randn(4, 8)[:, ::2]):
            f(x, w).backward(given)
        return facts(x, w)

    same_training(program)


def test_lazily_conjugated_gradients():
    def program(jit):
        f = jit(lambda x: x * 2)
        x = torch.randn(3, dtype=torch.complex64, requires_grad=True)
        for _ in range(2):
            f(x).backward(torch.randn(3, dtype=torch.complex64).conj())
        y = leaf(3)
        for _ in range(2):
            f(y).backward(torch.randn(3, dtype=torch.complex64).conj().imag)
        return facts(x, y)

    same_training(program)


def test_many_gradients_at_once():
    def program(jit):
        f = jit(lambda x: (x * x).exp())
        x = leaf(3)
        seen = []
        for _ in range(2):
            y = f(x)
            seen.append(torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True))
            seen.append(torch.autograd.functional.jacobian(f, x.detach(), vectorize=True))
            seen.append(torch.autograd.functional.jacobian(f, x.detach()))
        return seen

    same_training(program, plain=None)


@pytest.mark.compiled
def test_a_gradient_is_not_copied_into_place():
    import frameloom

    f = frameloom.jit(lambda x, w: (x @ w).exp())
    x, w = torch.randn(4, 8), leaf(8, 8)
    f(x, w).sum().backward()
    w.grad = None
    with torch.profiler.profile() as profile:
        f(x, w).sum().backward()
    assert not any(e.name == "aten::clone" for e in profile.events())


def test_a_history_along_which_nothing_flows():
    def program(jit):
        f = jit(lambda x: torch.linalg.vector_norm(x, 0))
        x = leaf(3)
        seen = []
        for _ in range(2):
            out = f(x)
            seen += [out.requires_grad, torch.autograd.grad(out, x, allow_unused=True)]
        return seen

    same_training(program, plain=None)


def test_gradients_that_are_checked():
    def program(jit):
        f = jit(lambda x: torch.linalg.eig(x)[1].real.sum())
        g = jit(lambda x: torch.linalg.svdvals(x).sum())
        x = leaf(3, 3)
        seen = [caught(f(x).backward) for _ in range(2)]
        for _ in range(2):
            g(x).backward()
        return seen, facts(x)

    same_training(program, plain=None)
