"""The gradients that Functions of the program give lie as those that come to them: zeros for missing ones are contiguous, however the results lie."""

import pytest
import torch

from tests.helpers import jit_for_test


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return y + 1, x * 1

    @staticmethod
    def backward(ctx, g, h):
        return h * 1, g


class Computed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return y + 1, x.clone()

    @staticmethod
    def backward(ctx, g, h):
        return h.exp(), g.t().exp().t()


LAYOUTS = {
    "plain": lambda: torch.ones(4, 8),
    "transposed": lambda: torch.ones(8, 4).t(),
    "with gaps": lambda: torch.ones(4, 16)[:, ::2],
    "a row": lambda: torch.ones(1, 8),
    "a transposed column": lambda: torch.ones(8, 1).t(),
    "a part of a column": lambda: torch.ones(8, 2)[:, :1].t(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [Swap, Computed])
def test_strides_of_gradients(function, layout, dynamic):
    def layouts(f):
        x, y = (LAYOUTS[layout]().requires_grad_() for _ in range(2))
        first, second = f(x, y)
        like, ones = torch.ones_like(first), torch.ones(first.shape)
        passes = [(first.sum(), None), (second.sum(), None), (second, like), (first, ones)]
        passes.append(((first, second), (like, ones)))
        return [
            [g.stride() for g in torch.autograd.grad(of, (x, y), given, retain_graph=True)]
            for of, given in passes
        ]

    wanted = layouts(function.apply)
    f = jit_for_test(lambda x, y: function.apply(x, y), dynamic=dynamic)
    assert [layouts(f) for _ in range(2)] == [wanted] * 2


BACKWARDS = {
    "handed on": lambda g: g,
    "views": lambda g: g.t().t()[:, :],
    "contiguous": lambda g: g.contiguous(),
    "contiguous, computed": lambda g: (g * 2).contiguous(),
    "contiguous if it is not": lambda g: g if g.is_contiguous() else g.contiguous() * 1,
    "beside a contiguous one": lambda g: torch.where(g.contiguous() > 0, g, g.contiguous()),
    "copied before it is looked at": lambda g: (
        g.clone(),
        g if g.is_contiguous() else g.contiguous(),
    )[0],
    "by its strides": lambda g: g + 0 if g.stride() == (2, 1) else g.contiguous(),
    "of what is computed": lambda g: (
        h.t() if (h := (g * 3).t()).is_contiguous() else h.t().contiguous()
    ),
    "reshaped": lambda g: g.reshape(-1).view(g.shape),
    "split": lambda g: g.flatten().unflatten(0, (g.shape[0], -1)),
    "expanded": lambda g: g.expand_as(g),
    "a sum": lambda g: g.sum(0, keepdim=True).expand_as(g),
    "a product": lambda g: g @ torch.eye(2),
    "a choice": lambda g: torch.where(g > 0, g, 0),
    "a clone that is written": lambda g: g.clone().add_(1),
    "like it": lambda g: torch.empty_like(g).copy_(g),
    "another dtype": lambda g: g.double().float(),
    "pieces": lambda g: torch.stack([g[:, 0], g[:, 1]], 1),
}
GIVEN = {
    "nothing": lambda: None,
    "a number": lambda: torch.ones(()).expand(3, 2),
    "a row": lambda: torch.arange(2.0).expand(3, 2),
    "a column": lambda: torch.arange(3.0)[:, None].expand(3, 2),
    "transposed": lambda: torch.arange(6.0).view(2, 3).t(),
    "with gaps": lambda: torch.arange(24.0).view(6, 4)[::2, ::2],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", BACKWARDS)
def test_backward_is_as_for_the_gradient_that_comes(name, dynamic):
    """With `create_graph`, too."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return BACKWARDS[name](g)

    def program(y):
        return Function.apply(y * 2) + 1, Function.apply(y)

    def gradients(f):
        found = []
        for given in GIVEN.values():
            for create_graph in (False, True):
                y = torch.linspace(-1, 1, 6).view(3, 2).requires_grad_()
                for result in f(y):
                    result, gradient = (result.sum(), None) if given() is None else (result, given())  # fmt: skip
                    (g,) = torch.autograd.grad(result, y, gradient, create_graph=create_graph)
                    found.append((g.stride(), g.untyped_storage().nbytes(), g.requires_grad, g.tolist()))  # fmt: skip
        return found

    assert gradients(jit_for_test(program, dynamic=dynamic)) == gradients(program)


class Constant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        made = y.clone()
        ctx.mark_non_differentiable(made)
        return x.clone(), made

    @staticmethod
    def backward(ctx, g, none):
        return g * 2, none * 2


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_zeros_for_a_result_without_gradient(layout, dynamic):
    def gradients(f):
        x, y = (LAYOUTS[layout]().requires_grad_() for _ in range(2))
        return [g.stride() for g in torch.autograd.grad(f(x, y)[0].sum(), (x, y))]

    f = jit_for_test(lambda x, y: Constant.apply(x, y), dynamic=dynamic)
    assert gradients(f) == gradients(Constant.apply)


WHOLE = {
    "all": lambda x: x[:, :],
    "rows": lambda x: x[:],
    "with a step": lambda x: x[::1, 0:],
    "with dots": lambda x: x[..., :],
    "beside a part": lambda x: x[:, 1:],
}


@pytest.mark.parametrize("name", WHOLE)
def test_slices_of_all_that_varies_hand_gradients_on(name):
    def gradients(f):
        found = []
        for rows in (4, 5, 3):
            x = torch.ones(rows, 3, requires_grad=True)
            made = f(x)
            for given in (torch.ones(made.shape[::-1]).t(), torch.ones(()).expand(made.shape)):
                (g,) = torch.autograd.grad(made, x, given, retain_graph=True)
                found.append(g.stride())
        return found

    assert gradients(jit_for_test(WHOLE[name], dynamic=True)) == gradients(WHOLE[name])


class Looks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.clone(), y.clone()

    @staticmethod
    def backward(ctx, g, h):
        return g * 2, h if h.is_contiguous() else h.contiguous()


@pytest.mark.parametrize("dynamic", [None, True])
def test_what_a_backward_looks_at_where_one_gradient_is_missing(dynamic):
    """The other one was expanded in the recording."""

    def program(x, y):
        first, second = Looks.apply(x, y)
        return first, second.sum()

    def gradients(f):
        x, y = (torch.ones(4, 5, requires_grad=True) for _ in range(2))
        first, second = f(x, y)
        one = torch.autograd.grad(first.sum(), (x, y), retain_graph=True)
        both = torch.autograd.grad(first.sum() + second, (x, y))
        return [(g.stride(), g.tolist()) for g in (*one, *both)]

    assert gradients(jit_for_test(program, dynamic=dynamic)) == gradients(program)
