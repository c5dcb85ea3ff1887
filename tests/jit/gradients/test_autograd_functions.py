"""autograd Functions of the program inside jitted functions: one graph where they only compute, plain Python where they do more."""

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import frameloom
from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor", "ignore:.*frameloom"
)
LOG = []


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return g


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-ctx.limit, ctx.limit), None


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(1.702 * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(1.702 * x)
        return g * (s + 1.702 * x * s * (1 - s))


class Exp(torch.autograd.Function):
    """In the newer style; saves its result."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Relu(torch.autograd.Function):
    """Its gradient is written in place."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        made = g.clone()
        made[x < 0] = 0
        return made


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        ctx.save_for_backward(x, w, b)
        made = x.mm(w.t())
        if b is not None:
            made += b.unsqueeze(0).expand_as(made)
        return made

    @staticmethod
    def backward(ctx, g):
        x, w, b = ctx.saved_tensors
        of_x = of_w = of_b = None
        if ctx.needs_input_grad[0]:
            of_x = g.mm(w)
        if ctx.needs_input_grad[1]:
            of_w = g.t().mm(x)
        if b is not None and ctx.needs_input_grad[2]:
            of_b = g.sum(0)
        return of_x, of_w, of_b


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.sort(-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return values, places

    @staticmethod
    def backward(ctx, g, _):
        (places,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter_(-1, places, g)


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x.chunk(2, 0)
        ctx.save_for_backward(x)
        return a.sin(), b.cos()

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return torch.cat([g, h]) * x


class Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.5).float()
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.reshape(-1)

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.shape)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module, ctx.twice = module, x * 2
        return module(x)

    @staticmethod
    def backward(ctx, g):
        return (g @ ctx.module.weight) * ctx.twice, None


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return None


LAYER = nn.Linear(8, 8)
FUNCTIONS = {
    "straight through": lambda x, w: StraightThrough.apply(x @ w).sin(),
    "straight through, summed": lambda x, w: StraightThrough.apply(x @ w).sum(),
    "reversal": lambda x, w: Reversal.apply(x @ w, 0.5).tanh(),
    "reversal at the end": lambda x, w: Reversal.apply(x @ w, 0.5),
    "a view and what it is of": lambda x, w: (h := x @ w, Reversal.apply(h, 2.0), h + 1)[1:],
    "clip": lambda x, w: Clip.apply((x @ w).exp(), 0.1).sum(),
    "gelu": lambda x, w: Gelu.apply(x @ w),
    "of an input": lambda x, w: Gelu.apply(w).sum() + x.sum(),
    "twice": lambda x, w: Gelu.apply(Gelu.apply(x @ w) + x),
    "saves its result": lambda x, w: Exp.apply((x @ w).sin()).cos(),
    "in place in backward": lambda x, w: Relu.apply(x @ w).sum(),
    "linear": lambda x, w: Linear.apply(x, w, w[0]).sin(),
    "linear without bias": lambda x, w: Linear.apply(x, w).sin(),
    "a result without gradient": lambda x, w: (r := Sorted.apply(x @ w), r[0] * r[1])[1],
    "two results": lambda x, w: sum(Halves.apply(x @ w)),
    "one of two results": lambda x, w: Halves.apply(x @ w)[1].exp(),
    "random": lambda x, w: Dropped.apply(x @ w).sin(),
    "views": lambda x, w: Flat.apply(x @ w).view(4, 8) + w[:4],
    "a module": lambda x, w: Scaled.apply(x @ w, LAYER),
    "changed afterwards": lambda x, w: Relu.apply(x @ w).add_(1),
    "no gradient": lambda x, w: Nothing.apply(x @ w) + w[:4],
}


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph(name, create):
    def program(jit):
        f = jit(FUNCTIONS[name])
        x, w = torch.randn(4, 8), (torch.randn(8, 8) / 4).requires_grad_()
        seen = []

        def run():
            out = f(x, w)
            parts = out if isinstance(out, tuple) else (out,)
            total = sum((part * (k + 2)).square().sum() for k, part in enumerate(parts))
            (g,) = torch.autograd.grad(total, [w], create_graph=create)
            seen.append((facts(*parts), g))
            if create and g.requires_grad:
                (g * w.detach()).sum().backward()
            seen.append(w.grad)

        errors = [caught(run) for _ in range(2)]
        return seen, errors

    same_training(program)
    if name != "a view and what it is of":
        assert frameloom.stats()["breaks"] == 0, frameloom.stats()


class Logs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        LOG.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        LOG.append("backward")
        return g * 2


class Changes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)


class Draws(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * torch.rand_like(g)


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no gradient here")


class Looks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g / g.norm() if g.norm() > 1 else g


class Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


LEFT = {
    "has an effect": lambda x: Logs.apply(x * 2).sin(),
    "changes its gradient": lambda x: Changes.apply(x.sin()),
    "draws": lambda x: Draws.apply(x * 2).sin(),
    "raises": lambda x: Raises.apply(x * 2).sin(),
    "looks at data": lambda x: Looks.apply(x * 2).sin(),
    "returns too little": lambda x: Short.apply(x, 3).sin(),
    "changes its argument": lambda x: Dirty.apply(x * 2) + 1,
}


@pytest.mark.parametrize("name", LEFT)
def test_left_to_python(name):
    def program(jit):
        LOG.clear()
        f, x, seen = jit(LEFT[name]), leaf(3, 4), []
        for _ in range(2):
            out = f(x)
            seen.append((out, caught(lambda out=out: out.square().sum().backward()), x.grad))
        return seen, list(LOG)

    same_training(program)
    assert frameloom.stats()["breaks"] >= 1


def test_saved_tensors_that_are_changed():
    def program(jit):
        inside = jit(lambda x: (y := x * 2, z := Exp.apply(y), z.add_(1))[1])
        outside = jit(lambda x: Gelu.apply(x).sin())
        a, b = leaf(4), leaf(4)
        first = caught(lambda: inside(a).sum().backward())
        out = outside(b)
        with torch.no_grad():
            b.add_(1)
        return first, caught(lambda: out.sum().backward())[0]

    same_training(program, plain=None)


def test_twice_backward():
    def program(jit):
        f, x = jit(lambda x: Gelu.apply(x * 2)), leaf(4)
        out = f(x)
        out.sum().backward(retain_graph=True)
        out.sum().backward()
        return x.grad, caught(lambda: out.sum().backward())

    same_training(program)


def test_hooks():
    """Those of inputs of which not all get a gradient: the call runs op by op."""

    def program(jit):
        f = jit(lambda v, b: (Exp.apply(v * v), Gelu.apply(b * 2)))
        v, b, seen = leaf(8), leaf(8), []
        for hooked in (False, True, True):
            handle = b.register_hook(lambda g: seen.append(g.clone())) if hooked else None
            for k in (0, 1):
                f(v, b)[k].sum().backward()
            if handle is not None:
                handle.remove()
            seen.append(facts(v, b))
        return seen

    same_training(program)


def test_hooks_of_a_result_whose_gradient_goes_nowhere():
    class Swaps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return y + 1, x.clone()

        @staticmethod
        def backward(ctx, g, h):
            return h, g

    def program(jit):
        f, z, seen = jit(lambda z, y: (t := Swaps.apply(z, y)[0], t * 2)), leaf(3), []
        for _ in range(2):
            t, result = f(z, torch.ones(3))
            t.register_hook(lambda g: seen.append(g.clone()))
            result.sum().backward()
        return seen, facts(z)

    same_training(program, plain=None)


@pytest.mark.parametrize("reentrant", [False, True])
def test_in_a_checkpoint(reentrant):
    from torch.utils.checkpoint import checkpoint

    def program(jit):
        f = jit(
            lambda x, w: checkpoint(lambda y: Gelu.apply(y @ w).sin(), x, use_reentrant=reentrant)
        )
        x, w = leaf(4, 8), torch.randn(8, 8)
        f(x, w).sum().backward()
        return facts(x)

    same_training(program)
    assert frameloom.stats()["breaks"] == 0


def test_whole_step():
    def program(jit):
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @jit
        def step(x):
            optimizer.zero_grad()
            h = Clip.apply(Gelu.apply(model[0](x)), 0.01)
            loss = StraightThrough.apply(model[2](h)).sub(0.5).square().sum() + Exp.apply(h).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses = [step(torch.randn(4, 6)) for _ in range(4)]
        return losses, [(p, p.grad) for p in model.parameters()]

    same_training(program)
    assert frameloom.stats()["breaks"] == 0


def test_gradients_inside():
    def program(jit):
        @jit
        def f(x):
            y = StraightThrough.apply(x.tanh()) * Gelu.apply(x)
            (g,) = torch.autograd.grad(y.sum(), [x])
            return g, y.detach()

        return [f(leaf(3, 4)) for _ in range(2)]

    same_training(program)
    assert frameloom.stats()["breaks"] == 0


def test_no_gradient_needed():
    def program(jit):
        f = jit(lambda x, w: Gelu.apply(x) @ w)
        x, w = torch.randn(4, 8), leaf(8, 8)
        f(x, w).sum().backward()
        with torch.no_grad():
            return f(x, w), facts(w)

    same_training(program)


FACTORS = [1.0]


class ByGlobals(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * FACTORS[0] * ByGlobals.factor


def test_numbers_that_backward_reads_are_those_of_the_backward_pass():
    def program(jit):
        FACTORS[0] = ByGlobals.factor = 1.0
        x = torch.ones(3, requires_grad=True)
        y = jit(lambda x: ByGlobals.apply(x).sum())(x)
        FACTORS[0] = 5.0
        y.backward(retain_graph=True)
        ByGlobals.factor = 3.0
        y.backward()
        return x.grad

    assert torch.equal(program(frameloom.jit), program(lambda f: f))
