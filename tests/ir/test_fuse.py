"""Fusion: how many kernels remain, and that the results stay what they were."""

import time

import pytest
import torch
from torch import nn

import frameloom
from frameloom.ir import interp
from frameloom.ir.lower import lower
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.program import Extern, Kernel
from frameloom.ir.substitute import loads
from frameloom.ir.verify import verify
from tests.ir.helpers import assert_same, check, graph_of, kernels

F = nn.functional
LOOSE = (2e-5, 2e-5)


def fused(function, *inputs, count=1, tolerance=LOOSE, **options):
    program = check(function, *inputs, passes=[fuse], tolerance=tolerance, **options)
    verify(program, "fuse")
    names = [k.name for k in kernels(program)]
    assert count is None or len(names) == count, names
    return program


def test_pointwise_chain_is_one_kernel():
    program = fused(
        lambda x, y: torch.sigmoid(x * y + 1).sin() * 2 - y, torch.randn(4, 5), torch.randn(5)
    )
    assert len(program.steps) == 1 and len(program.steps[0].stores) == 1


def test_softmax():
    fused(lambda x: (x * 0.125).softmax(-1), torch.randn(3, 4, 8))
    fused(lambda x, m: (x / 8 + m).softmax(-1), torch.randn(2, 3, 8, 8), torch.randn(2, 1, 1, 8))
    fused(
        lambda x: F.softmax(x.float(), -1).to(x.dtype),
        torch.randn(3, 4, 8).bfloat16(),
        tolerance=(1e-2, 1e-3),
    )


def test_residual_layer_norm_gelu():
    def f(x, r, w, b):
        h = x + r
        return F.gelu(F.layer_norm(h, (16,), w, b)), h

    program = fused(
        f, torch.randn(2, 5, 16), torch.randn(2, 5, 16), torch.randn(16), torch.randn(16)
    )
    assert len(program.steps[0].stores) == 2


def test_rms_norm_by_hand():
    def f(x, w):
        v = x.float()
        v = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)
        return w * v.to(x.dtype)

    fused(f, torch.randn(2, 5, 16).bfloat16(), torch.randn(16).bfloat16(), tolerance=(2e-2, 1e-2))
    fused(f, torch.randn(2, 5, 16), torch.randn(16))


def test_cross_entropy():
    fused(F.cross_entropy, torch.randn(6, 10), torch.randint(0, 10, (6,)))
    t = torch.tensor([1, -100, 3, 9, -100, 0])
    fused(F.cross_entropy, torch.randn(6, 10), t)
    fused(
        lambda x, t: F.cross_entropy(x.view(-1, 10), t.view(-1), reduction="sum"),
        torch.randn(2, 3, 10),
        t.view(2, 3),
    )


def test_batch_norm_in_training():
    def f(x, w, b, m, v, n):
        out = torch.ops.aten._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5)
        n.add_(1)
        m.copy_(out[3])
        v.copy_(out[4])
        return torch.relu(out[0])

    inputs = [
        torch.randn(4, 3, 5, 5),
        torch.randn(3),
        torch.randn(3),
        torch.randn(3),
        torch.rand(3),
        torch.tensor(0),
    ]
    program = fused(f, *inputs, functional=True, count=None)
    names = [k for k in kernels(program) if len(k.stores) >= 3]
    # The step counter has nothing in common with the rest.
    assert len(names) == 1 and len(kernels(program)) <= 2


def test_rope():
    def f(q, cos, sin):
        a, b = q.chunk(2, -1)
        return q * cos + torch.cat([-b, a], -1) * sin

    program = fused(f, torch.randn(2, 3, 4, 32), torch.randn(4, 32), torch.randn(4, 32))
    text = repr(program.steps[0].stores)
    assert len(program.steps[0].stores) == 2 and "where" not in text


def test_swiglu_and_friends():
    fused(lambda x: F.silu(x[:, :8]) * x[:, 8:], torch.randn(4, 16))
    fused(lambda a, b: F.silu(a) * b, torch.randn(4, 16), torch.randn(4, 16))
    fused(lambda a, b: a.t() + b, torch.randn(4, 6), torch.randn(6, 4))
    fused(lambda x: F.glu(x * 2), torch.randn(4, 16))


def test_epilogue_of_a_library_call():
    def f(x, w, b):
        return torch.relu(x @ w + b) * 3

    program = fused(f, torch.randn(4, 6), torch.randn(6, 5), torch.randn(5), lowered=False)
    assert [type(s) for s in program.steps] == [Extern, Kernel]


def test_siblings_share_one_read():
    fused(lambda x: (x.sum(1), x.amax(1), x.mean(1, keepdim=True)), torch.randn(4, 6))
    fused(lambda x: (x.sin(), x.cos(), x + 1), torch.randn(4, 6))
    fused(lambda x: torch.sin(x) + torch.cos(x).exp().sum(), torch.randn(4, 6))
    fused(lambda x: torch.var_mean(x, -1), torch.randn(4, 6))
    fused(lambda x: (x - x.mean(0)) / x.std(0), torch.randn(4, 6))
    fused(lambda x: torch.std(x.exp()) + x.sum(), torch.randn(4, 6))


def test_intermediate_that_is_returned():
    program = fused(lambda x: ((y := x * 2 + 1), y.exp(), y.sum()), torch.randn(4, 6))
    loads = {n.arg.name for s in program.steps[0].stores for n in _loads(s)}
    assert len(loads) == 1


def _loads(store):
    from frameloom.ir.substitute import loads

    return loads([store.value])


def test_expensive_values_are_not_repeated():
    # tanh would run once per column of the product.
    def f(x, y):
        return (torch.tanh(x)[:, :, None] * y[None]).sum(1)

    program = fused(f, torch.randn(64, 96), torch.randn(96, 64), count=2)
    assert "tanh" in program.steps[0].name

    # A column sum must not repeat the row sums.
    fused(lambda x: (x / x.sum(1, keepdim=True)).sum(0), torch.randn(4, 6), count=2)


def test_a_library_call_in_between():
    def f(x, w):
        h = torch.sin(x)
        return h + h @ w

    program = fused(f, torch.randn(6, 6), torch.randn(6, 6), lowered=False, count=2)
    assert [type(s) for s in program.steps] == [Kernel, Extern, Kernel]

    # What is cheap is computed again instead of kept for later.
    def g(x, w):
        h = x + 1
        return (h @ w).relu() + x.t().contiguous() @ w, (h * 2).sum()

    fused(g, torch.randn(6, 6), torch.randn(6, 6), lowered=False, count=None)


def test_dead_intermediates_are_overwritten():
    program = fused(
        lambda x, w: torch.relu(x @ w) + 1, torch.randn(4, 6), torch.randn(6, 5), lowered=False
    )
    assert program.steps[0].results == (program.outputs[0].buffer,)

    def chain(x, w):
        for _ in range(3):
            x = torch.sigmoid(x @ w)
        return x

    program = fused(chain, torch.randn(6, 6), torch.randn(6, 6), lowered=False, count=3)
    assert len({b for s in program.steps if isinstance(s, Extern) for b in s.results}) == 3

    # The product has another shape than what takes its place in the end.
    def reshaped(x, w, v):
        y = torch.relu(x @ w)
        z = y.view(3, 12) @ v
        return y.view(3, 12).sin() * z

    fused(
        reshaped, torch.randn(6, 6), torch.randn(6, 6), torch.randn(12, 12), lowered=False, count=2
    )
    # A row that is read as a whole is not overwritten while it is read; nor is what is read elsewhere too.
    for f in [
        lambda x, w: (x @ w).softmax(-1),
        lambda x, w: (x @ w) + (x @ w).t() * 2,
        lambda x, w: (y := x @ w) * y.flip(0),
        lambda x, w: torch.relu((x @ w).t()),  # in place, but with other strides
    ]:
        fused(f, torch.randn(6, 6), torch.randn(6, 6), lowered=False)

    def read_again(x, w):
        y = x @ w
        return torch.relu(y) @ w + y

    fused(read_again, torch.randn(6, 6), torch.randn(6, 6), lowered=False, count=2)


def test_views_between_kernels():
    fused(lambda x: (x + 1).view(2, 3, 8).transpose(1, 2).reshape(16, 3) * 2, torch.randn(6, 8))
    fused(lambda x: x.softmax(-1).view(2, 3, 8) + 1, torch.randn(6, 8))
    fused(lambda x: (x.exp().t() + 1).contiguous(), torch.randn(6, 8))
    fused(lambda x: F.pad(x * 2, (1, 1)) + 1, torch.randn(6, 8))
    fused(lambda x: (x * 2).flip(0)[1:, ::2] + 1, torch.randn(6, 8))
    fused(lambda x: torch.cat([x + 1, x.sum(1, keepdim=True), x * 2], 1) * 3, torch.randn(6, 8))
    fused(lambda x: torch.stack([x.sin(), x.cos()], -1).flatten(-2), torch.randn(6, 8))
    fused(lambda x: (x + 1).unfold(0, 3, 1).sum(-1), torch.randn(10))


def test_gathers_are_fused_and_checked():
    w, i = torch.randn(10, 16), torch.randint(0, 10, (3, 5))
    fused(lambda i, w: F.layer_norm(F.embedding(i, w) * 2, (16,)), i, w, count=1)
    fused(lambda x, i: (x.exp() + 1)[i] * 2, torch.randn(10, 4), torch.tensor([1, -1, 3]), count=1)
    fused(
        lambda x, i: x.log_softmax(-1).gather(1, i).mean(),
        torch.randn(6, 4),
        torch.randint(0, 4, (6, 1)),
    )


def test_what_is_used_at_two_places_in_each_step_is_not_computed_twice_as_often_with_each():
    def jumps(x, places):
        for row in places:
            x = x + x[row]
        return x

    program = fused(jumps, torch.randn(50), torch.randint(0, 50, (12, 50)), count=None)
    stores = [s for k in kernels(program) for s in k.stores]
    assert sum(1 for s in stores for _ in loads([s.value])) < 12 * 16


def test_indices_known_to_be_in_range_are_not_checked():
    program = fused(lambda x: x[torch.arange(4), torch.arange(3, -1, -1)] * 2, torch.randn(4, 6))
    assert len(program.steps) == 1 and len(program.steps[0].stores) == 1


def test_written_inputs_keep_their_order():
    def f(x, y):
        a = x * 2
        x.add_(y)
        return a + x, x.sum()

    fused(f, torch.randn(4, 6), torch.randn(4, 6), functional=True, count=None)

    def g(p, m, d):
        m.mul_(0.9).add_(d)
        p.sub_(m * 0.1)

    fused(g, torch.randn(8), torch.randn(8), torch.randn(8), functional=True, count=None)

    def shift(x):
        x[1:].copy_(x[:-1].clone())
        return x * 1

    fused(shift, torch.randn(6), functional=True, count=None)

    # What is not elementwise reads before the write, in a kernel of its own.
    def folds(x, y, z):
        a = x * 2 + z.sum(1, keepdim=True)
        x.add_(y)
        return a

    three = [torch.randn(4, 6) for _ in range(3)]
    fused(folds, *three, functional=True, count=None)

    # Behind the product, `t` cannot be computed again.
    def read_later(x, w):
        t = x + 1
        a = t * 2
        x.add_(5)
        return t + a @ w

    fused(read_later, torch.randn(6, 6), torch.randn(6, 6), functional=True, lowered=False, count=None)  # fmt: skip


def test_dead_code_is_dropped_but_not_effects():
    program = fused(
        lambda x: (x.sin(), x @ x, torch.rand_like(x))[0], torch.randn(4, 4), lowered=False
    )
    assert [s.target if isinstance(s, Extern) else s.name for s in program.steps] == [
        "sin_0",
        "aten.rand_like.default",
    ]


def test_random_numbers_are_drawn_in_the_order_of_the_program():
    """Though the first draw waits for a kernel that another one, from behind the second, has joined."""

    def f(x):
        p = torch.sigmoid(x)
        first = torch.native_dropout(p, 0.5, True)[0]
        return first, torch.native_dropout(x, 0.5, True)[0], torch.cos(x), p

    x = torch.randn(4, 6)
    gm = graph_of(f, x)
    program = fuse(lower(gm.graph, gm))
    torch.manual_seed(1)
    expected = f(x)
    torch.manual_seed(1)
    assert_same(interp.run(program, [x]), expected)


def test_what_may_fail_waits_for_the_random_numbers_that_it_reads():
    def f(x):
        drawn = torch.native_dropout(x, 0.5, True)[0] + torch.eye(4)
        return torch.linalg.inv(drawn.triu()), x.sum()

    gm = graph_of(f, torch.randn(4, 4))
    verify(fuse(lower(gm.graph, gm)), "fuse")


def test_empty_tensors():
    fused(lambda x: (x + 1, x.sum(0), (x * 2).sum(1) + 1), torch.randn(3, 0), count=None)
    fused(lambda x: torch.cat([x[:, :0] + 1, x], 1), torch.randn(3, 2))


@pytest.mark.parametrize("layers", [12])
def test_fusing_a_transformer_is_quick(layers):
    def block(x, mask, w1, w2, w3, g, b):
        n, s, d = x.shape
        q, k, v = (x @ w1).view(n, s, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-1, -2) / 4 + mask).softmax(-1) @ v
        x = F.layer_norm(x + a.transpose(1, 2).reshape(n, s, d), (d,), g, b)
        h = F.gelu(x @ w2) @ w3
        return F.layer_norm(x + h, (d,), g, b)

    def model(x, mask, *weights):
        for _ in range(layers):
            x = block(x, (1 - mask[:, None, None, :].float()) * -1e9, *weights)
        return x

    d = 16
    inputs = [
        torch.randn(2, 8, d),
        torch.ones(2, 8),
        torch.randn(d, 3 * d),
        torch.randn(d, 4 * d),
        torch.randn(4 * d, d),
        torch.randn(d),
        torch.randn(d),
    ]
    gm = graph_of(model, *inputs)
    start = time.perf_counter()
    program = lower(gm.graph, gm)
    middle = time.perf_counter()
    program = fuse(program)
    end = time.perf_counter()
    verify(program)
    print(f"{len(gm.graph.nodes)} nodes, lower {middle - start:.3f} s, fuse {end - middle:.3f} s")
    per_layer = len(kernels(program)) / layers
    assert per_layer <= 7, [k.name for k in kernels(program)]


def test_several_stores_of_a_kernel_that_their_readers_compute():
    """The first one that they compute leaves nobody who needs the others."""

    def fn(y):
        part = y.diagonal()
        part[2] += 2
        y.diagonal().fill_(1)

    a, b = torch.zeros(2, 2, 4), torch.zeros(2, 2, 4)
    fn(a)
    frameloom.jit(fn)(b)
    assert a.equal(b)
