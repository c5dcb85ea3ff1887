"""Custom autograd Functions, checkpointed regions, autocast and gradient scaling, with compiled calls."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.helpers import jit_for_test
from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Clip(torch.autograd.Function):
    """Passes on gradients that are not large."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.clamp(-ctx.limit, ctx.limit) * x.sign(), None


class Both(torch.autograd.Function):
    """Several results, one of them without gradient; written in the newer style."""

    @staticmethod
    def forward(x, y):
        return x * y, (x > y), x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, _, h):
        x, y = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, g * x
        return (g * y if h is None else g * y + 3 * h), g * x


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


FUNCTIONS = {
    "alone": lambda x, w: Clip.apply(x @ w, 0.1),
    "among others": lambda x, w: torch.tanh(Clip.apply((x @ w).exp(), 0.1)).sum(),
    "twice": lambda x, w: Clip.apply(Clip.apply(x @ w, 0.5) + w[:4], 0.1),
    "several results": lambda x, w: (r := Both.apply(x @ w, w[:4]), r[0] * 2 + r[2])[1],
    "a result that is not used": lambda x, w: Both.apply(x @ w, w[:4])[0].sin(),
    "in place": lambda x, w: (y := x @ w + 1, Double.apply(y), y * 3)[2],
    "without gradients": lambda x, w: Clip.apply(x, 0.1) @ w,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_custom_functions(name):
    def program(jit):
        f = jit(FUNCTIONS[name])
        x, w = torch.randn(4, 8), leaf(8, 8)
        seen = []
        for _ in range(3):
            out = f(x, w)
            out.sum().backward()
            seen.append(facts(out, w))
        return seen

    same_training(program)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_checkpoint(reentrant, inside):
    def program(jit):
        calls = []
        part = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 8))

        def region(x):
            if not inside:
                calls.append(x.requires_grad)
            return part(x)

        def f(x):
            return torch.tanh(checkpoint(region, x * 2, use_reentrant=reentrant)) + x

        region, f = (region, jit(f)) if inside else (jit(region), f)
        x = leaf(4, 8)
        seen = []
        for _ in range(3):
            out = f(x)
            out.sum().backward()
            seen.append((facts(out, x), [p.grad.clone() for p in part.parameters()], torch.rand(2)))
        return seen, calls

    same_training(program, plain=None)


def test_checkpoint_sequential():
    def program(jit):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
        f = jit(lambda x: checkpoint_sequential(model, 2, x, use_reentrant=False))
        x = leaf(4, 8)
        for _ in range(2):
            f(x).sum().backward()
        return facts(x), [p.grad for p in model.parameters()]

    same_training(program, plain=None)


@pytest.mark.parametrize("where", ["inside", "outside", "around the backward pass", "nested"])
def test_autocast(where):
    def program(jit):
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))

        def forward(x):
            if where in ("inside", "nested"):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    y = model(x)
                    if where == "nested":
                        with torch.autocast("cpu", enabled=False):
                            return F.softmax(y.float(), -1)
                    return y
            return model(x)

        f = jit(forward)
        x = leaf(4, 8)
        seen = []
        for _ in range(3):
            with torch.autocast(
                "cpu", dtype=torch.bfloat16, enabled=where not in ("inside", "nested")
            ):
                out = f(x)
                loss = out.float().square().mean()
                if where == "around the backward pass":
                    loss.backward()
            if where != "around the backward pass":
                loss.backward()
            seen.append(
                (facts(out, x), [(p.grad.dtype, p.grad.clone()) for p in model.parameters()])
            )
        return seen

    same_training(program, rtol=2e-2, atol=2e-2)


def test_gradient_scaling():
    def program(jit):
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
        jit(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
        losses = []
        for k in range(5):
            optimizer.zero_grad()
            x = torch.randn(4, 8) * (1e30 if k == 2 else 1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append((loss.item() if k != 2 else 0, scaler.get_scale()))
        return losses, list(model.parameters())

    same_training(program, plain=None, rtol=2e-2, atol=2e-2)


def test_half_precision():
    def program(jit):
        seen = []
        for dtype in (torch.bfloat16, torch.float16):
            f = jit(lambda x, w: F.softmax(F.gelu(x @ w), -1).sum(0))
            x, w = torch.randn(4, 8, dtype=dtype), leaf(8, 8, dtype=dtype)
            for _ in range(2):
                out = f(x, w)
                out.float().square().sum().backward()
            seen.append(facts(out, w))
        return seen

    same_training(program, rtol=2e-2, atol=2e-2)


def test_what_fails_inside_fails_as_in_eager():
    def program(jit):
        f = jit(lambda x, w: Clip.apply(x @ w, "no number"))
        x, w = torch.randn(4, 8), leaf(8, 8)
        return [caught(lambda: f(x, w).sum().backward()) for _ in range(2)]

    same_training(program)


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        return (x.view(-1), x * 3)[:count]

    @staticmethod
    def backward(ctx, *grads):
        return grads[0].view(2, 2), None


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_view_that_a_function_made_is_written(count, where):
    def fn(x):
        a = Flat.apply(x * 1, count)[0]
        return a.add_(1) if where == "inside" else a

    def program(jit):
        x = leaf(2, 2)
        made = caught(jit(fn), x)
        return [made if where == "inside" else caught(made.add_, 1), *facts(x)]

    same_training(program, plain=None)


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return y + 1, x * 2, x * y

    @staticmethod
    def backward(ctx, g, h, _):
        return h * 2, g


class Unlike(torch.autograd.Function):
    """What it gives does not depend on the gradients that it gets."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, *_):
        return ctx.saved_tensors[0].cos(), torch.ones(2, 2)


@pytest.mark.parametrize("cls", [Swap, Unlike])
@pytest.mark.parametrize(
    "fn",
    [
        lambda cls, x, y: cls.apply(x, y)[:2],
        lambda cls, x, y: (cls.apply(x, y)[1].sin(), x * y),
        lambda cls, x, y: (cls.apply(x, y)[0], y.sum()),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_gradients_of_a_function_some_of_whose_results_have_none(cls, fn, place):
    """Where it does not run, its arguments have no gradient; where it runs, missing ones are zeros."""

    def program(jit):
        x, y = leaf(2, 2), leaf(2, 2)
        jit(fn)(cls, x, y)[place].sum().backward()
        return [x.grad, y.grad]

    same_training(program)


@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize("history", [False, True])
def test_an_input_that_is_changed_where_nothing_is_recorded(history, mode):
    """It comes out detached if it has a history."""

    def program(jit):
        x = leaf(3) * 2 if history else torch.ones(3)
        with torch.set_grad_enabled(mode):
            made, given = jit(lambda x: (Double.apply(x), x))(x)
        return facts(made, given), made is x, given is x, made, given

    same_training(program, plain=None)


def test_a_history_that_leads_to_no_input(monkeypatch):
    """PyTorch 2.11 refuses to ask for no gradients by another exception than later ones."""
    grad = torch.autograd.grad

    def asked(outputs, inputs, *args, **kwargs):
        assert inputs
        return grad(outputs, inputs, *args, **kwargs)

    def fn(z):
        t = z.detach().requires_grad_()
        kept = checkpoint(lambda q: (q * t).tanh(), t, use_reentrant=False)
        return Flat.apply(kept, 1)[0]

    monkeypatch.setattr(torch.autograd, "grad", asked)
    same_training(lambda jit: facts(jit(fn)(torch.ones(2, 2))), plain=None)


class PutsOutside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[torch.tensor([0, 1])]

    @staticmethod
    def backward(ctx, g):
        return g.new_zeros(4, 3).index_put((torch.tensor([0, 9]),), g, accumulate=True)


def test_gradients_put_out_of_range_by_the_program_are_refused():
    """The gradient of a gather is put back unchecked, because the gather has checked its indices; that of the
    program's own function is checked."""

    def f(x):
        return torch.autograd.grad(PutsOutside.apply(x).sum(), x)

    for run in f, jit_for_test(f):
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            run(torch.ones(4, 3, requires_grad=True))
