"""What comes out of compiled calls that need gradients: inputs, views, tensors over one memory, those without gradients."""

import pytest
import torch

import frameloom
from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

OUTPUTS = {
    "an input": lambda x, w: (w, x @ w),
    "an input alone": lambda x, w: (w, x * 2),
    "a view of an input": lambda x, w: (w.view(4, 16), x @ w),
    "views of views of an input": lambda x, w: (w.t()[1:3], w.t()[1:3].reshape(2, 2, 4), x @ w),
    "parts of an input": lambda x, w: (*w.chunk(2), x @ w),
    "a view of an input without gradient": lambda x, w: (x.t(), x @ w),
    "a tensor and its view": lambda x, w: (y := x @ w, y.view(16, 2)),
    "two views of one tensor": lambda x, w: ((y := x @ w)[:2], y[2:]),
    "a view only": lambda x, w: ((x @ w).t()[1:3],),
    "a view and the tensor, in the other order": lambda x, w: ((y := x @ w).t(), y),
    "a reshaped product": lambda x, w: (y := (x.view(2, 2, 8) @ w), y.view(4, 8)),
    "a tensor and itself detached": lambda x, w: (y := x @ w, y.detach()),
    "detached alone": lambda x, w: ((x @ w).detach(), x @ w),
    "an input detached": lambda x, w: (w.detach(), x @ w),
    "data": lambda x, w: (w.data, x @ w),
    "integers": lambda x, w: ((y := x @ w), y.argmax(1), (y > 0)),
    "no gradient at all": lambda x, w: (x * 2, w * 3),
    "one tensor twice": lambda x, w: (y := x @ w, y),
    "an expanded tensor": lambda x, w: ((x @ w).sum(0).expand(4, 8), w.expand(2, 8, 8)),
    "tensors written inside": lambda x, w: (y := torch.zeros(4, 8).copy_(x @ w), y[1:]),
    "a tensor written through a view": lambda x, w: ((y := x @ w)[1].mul_(2), y),
    "a part of what is lazily conjugated": lambda x, w: (
        (z := torch.complex(x @ w, x).conj())[1:].mul_(2),
        z,
    ),
    "complex parts": lambda x, w: (torch.view_as_real((z := torch.complex(x @ w, x)) * z), z.real),
    "empty": lambda x, w: (x[:0] @ w, x @ w),
    "numbers and containers": lambda x, w: ({"a": x @ w, "b": [w.sum(), 3]}, "text"),
}


def tensors(result):
    if isinstance(result, torch.Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result
    return [
        t
        for part in parts
        if isinstance(part, torch.Tensor | list | tuple | dict)
        for t in tensors(part)
    ]


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name):
    def program(jit):
        f = jit(OUTPUTS[name])
        x, w = torch.randn(4, 8), leaf(8, 8)
        seen = []
        for _ in range(2):
            result = f(x, w)
            outs = tensors(result)
            total = sum(
                (o.abs() if o.is_complex() else o).sin().sum() for o in outs if o.requires_grad
            )
            total.backward()
            seen.append((result, facts(*outs, x, w), [o is w for o in outs]))
        return seen

    same_training(program)


@pytest.mark.parametrize("name", OUTPUTS)
def test_inputs_with_a_history(name):
    def program(jit):
        f = jit(OUTPUTS[name])
        x, w = leaf(4, 8), leaf(8, 8)
        seen = []
        for _ in range(2):
            outs = tensors(f(x * 2, w * 2))
            for o in outs:
                if o.requires_grad and not o.is_leaf:
                    (o.abs() if o.is_complex() else o).sum().backward(retain_graph=True)
            seen.append(facts(*outs, x, w))
        return seen

    same_training(program)


def test_views_made_without_gradient_mode():
    def program(jit):
        @jit
        def f(x, w):
            y = x @ w
            with torch.no_grad():
                z, v = y.view(-1), w.view(-1)
            return y, z, v, z * 2, y * 2

        x, w = torch.randn(4, 8), leaf(8, 8)
        seen = []
        for _ in range(2):
            outs = f(x, w)
            outs[4].sum().backward(retain_graph=True)
            seen.append(facts(*outs, w))
        return seen

    same_training(program)


@pytest.mark.parametrize("part", ["real", "imag"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: ((v := (x * 2)[1:]), v * 2),
        lambda x: ((v := (x * 2)[1:]), v.detach()),
        lambda x: ((v := (x * 2)[1:]), v.conj(), v.sum()),
        lambda x: ((v := (x * 2)[1:]), v.imag.mul_(2)),
    ],
)
def test_real_parts_of_a_view_are_written_behind_the_call(fn, part):
    """Autograd puts them back where they lie in a memory that begins with what a node gives."""

    def program(jit):
        x = torch.complex(leaf(3).detach(), torch.ones(3)).requires_grad_()
        seen, *others = jit(fn)(x)
        getattr(seen, part).mul_(3)
        seen.abs().sum().backward()
        return [seen, *others, x.grad, facts(seen)]

    same_training(program)


def test_writing_to_outputs_behind_the_call():
    def program(jit):
        f = jit(lambda x, w: ((y := x @ w), y.view(-1), (x * 2).sum() + w))
        x, w = torch.randn(4, 8), leaf(8, 8)
        for _ in range(2):
            y, v, z = f(x, w)
            v.mul_(3)
            z += 1
            (y.sum() + z.sum()).backward()
        return facts(y, v, z, w), [y._version, v._version]

    same_training(program)


def test_outputs_that_are_inputs_take_writes_as_eager_does():
    def program(jit):
        f = jit(lambda x, w: (w.view(-1), x @ w))
        x, w = torch.randn(4, 8), leaf(8, 8)
        f(x, w)
        v, _ = f(x, w * 1)
        v.mul_(2)
        return facts(v), caught(lambda: f(x, w)[0].mul_(2))

    same_training(program)


PIECES = {
    "of what is seen": lambda x: ((v := x * 2), v.chunk(2)[0]),
    "of what nobody sees": lambda x: ((x * 2).chunk(2)[0],) * 2,
    "a view of one": lambda x: ((x * 2).unbind(0)[1].view(2, 4), x.sum()),
    "two of one call": lambda x: (x * 2).split([1, 3])[::-1],
    "of an input": lambda x: (x.sum(), x.split(2)[1]),
    "of what was written to": lambda x: ((v := x * 2).relu_(), v.chunk(2)[0]),
    "written to behind": lambda x: ((v := x * 2), v.chunk(2)[0], v.relu_()),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_one_op_take_no_writes(name):
    def program(jit):
        f = jit(PIECES[name])
        a = leaf(4, 8)
        seen = []
        for _ in range(2):
            f(a * 1)[1].sum().backward()
            seen += [a.grad.clone(), caught(f(a * 1)[1].mul_, 2), caught(f(a * 1)[0].mul_, 2)]
        return seen

    same_training(program, plain=None)


def test_a_write_to_a_piece_inside():
    def write(x):
        v = x * 2
        v.chunk(2)[0].mul_(2)
        return v

    def read(x):
        v = x * 2
        a = v.unbind(0)[0]
        v.mul_(2)
        return v, a * 2

    def past_autograd(x):
        a = (x * 2).split(2)[0]
        a.data.mul_(0.5)
        return a

    def program(jit):
        return [caught(jit(f), leaf(4, 8)) for f in (write, read, past_autograd)]

    same_training(program, plain=None)


def test_a_view_written_to_without_gradient_mode():
    def fn(x):
        v = x.reshape(x.shape)
        v -= 1

    def program(jit):
        f, x = jit(fn), leaf(3) * 1.5
        with torch.no_grad():
            f(x)
            f(x)
        return facts(x)

    same_training(program, plain=None)


def write_to_views(x, z):
    y, w, v = x * 2, z + 1, z.t()
    part = w[:2]
    print(end="")
    v.copy_(x)
    part.copy_(x)
    return y, w, v._is_view(), v._base is z, part._base is w


def test_views_of_what_has_no_history_take_writes_that_have():
    """Made in the node, they would refuse them."""

    def program(jit):
        x, z = leaf(3), torch.zeros(3, 3)
        y, w, *told = jit(write_to_views)(x, z)
        (y.sum() + w.sum() + z.sum()).backward()
        return facts(y, w, z, x), told

    same_training(program)


@pytest.mark.parametrize("fn", [lambda x: x + 1, lambda x: x * 2, lambda x: x.t() + 1])
@pytest.mark.parametrize("seed", ["expanded", "new"])
def test_gradients_lie_as_in_eager_in_dimensions_of_size_one(fn, seed):
    strides = []
    for f in (fn, frameloom.jit(fn)):
        x = torch.empty_strided((2, 1), (1, 2)).fill_(3.0).requires_grad_()
        y = f(x)
        (y if seed == "expanded" else y * torch.ones(y.shape)).sum().backward()
        strides.append(x.grad.stride())
    assert strides[0] == strides[1]


def test_an_expanded_gradient_is_handed_on_as_it_is():
    fn = frameloom.jit(lambda x: (x + 1, (x * 2).t()))
    x = leaf(2, 3)
    y, _ = fn(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.stride() == (0, 0)


@pytest.mark.parametrize("jit", [lambda fn: fn, frameloom.jit])
def test_one_gradient_of_several_inputs_is_one_object(jit):
    x, y = leaf(3), leaf(3)
    fn = jit(lambda x, y: (x + y) ** 2)
    a, b = torch.autograd.grad(fn(x, y).sum(), (x, y))
    assert a is b
    assert not b._is_view()
    fn(x, y).sum().backward()
    assert x.grad.data_ptr() != y.grad.data_ptr()
    assert not x.grad._is_view() and not y.grad._is_view()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y, z: (y.cos(), x * y),
        lambda x, y, z: (x * 2 + y, z + 1, x.sin() + z.sin()),
        lambda x, y, z: ((h := x + y).sin(), h.cos() * z),
    ],
)
@pytest.mark.parametrize("leaves", ["", "x", "yz"])
def test_a_pass_goes_through_the_histories_that_its_result_has(fn, leaves):
    def program(jit):
        given = [leaf(2) for _ in "xyz"]
        inputs = [t if name in leaves else t.sin() for t, name in zip(given, "xyz", strict=True)]
        results = jit(fn)(*inputs)
        said = [caught(t.sum().backward) for t in (*results, *inputs)]
        return [s and s[0] for s in said], [t.grad for t in given]

    same_training(program)


def test_a_result_that_leads_to_no_input_beside_others_that_lead_to_several():
    def fn(x, y):
        with torch.no_grad():
            view = y[1:]
        return view * 2, y[:1] + 3, x * 4

    def program(jit):
        x, y = leaf(3, 3), leaf(3, 3)
        made = jit(fn)(x * 1, y * 1)  # both with a history
        for t in made:
            t.sum().backward()
        return [(t, t.requires_grad, t.is_leaf) for t in made], *facts(x, y)

    same_training(program)
