"""Triton texts that take sizes as parameters: one for all shapes, interpreted on the CPU at several, and compiled for a GPU."""

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("triton")

import frameloom
from frameloom import jit, pipeline
from frameloom.codegen.sizes import narrow
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.shape_env import ShapeEnv
from tests.codegen.interpreted_gpu import on_a_gpu
from tests.jit.sizes.test_dynamic import Decoder

SHAPES = ((2, 3), (4, 5), (7, 2), (3, 300), (1, 9), (3, 1), (1, 1), (33, 64))


def rand(*shape):
    return torch.randn(*shape)


CASES = {
    "pointwise": (lambda x: torch.relu(x) * 2 + 1, lambda b, s: (rand(b, s),)),
    "rows": (lambda x, y: x * y + y, lambda b, s: (rand(b, s), rand(s))),
    "softmax": (lambda x: torch.softmax(x * 2, -1) + 1, lambda b, s: (rand(b, s),)),
    "half_softmax": (lambda x: torch.softmax(x, -1) * 2, lambda b, s: (rand(b, s).half(),)),
    "log_softmax": (lambda x: torch.log_softmax(x, 0), lambda b, s: (rand(b, s),)),
    "layer_norm": (lambda x: F.layer_norm(x, (16,)), lambda b, s: (rand(b, s, 16),)),
    "norm_of_all": (lambda x: F.layer_norm(x, x.shape[1:]), lambda b, s: (rand(b, s, 6),)),
    "columns": (lambda x: x.sum(0), lambda b, s: (rand(b, s),)),
    "mean": (lambda x: (x * x).mean(), lambda b, s: (rand(b, s),)),
    "middle": (lambda x: x.amax(1) + x.mean(1), lambda b, s: (rand(b, s, 24),)),
    "cat": (lambda x, y: torch.cat([x, y], 1) + 1, lambda b, s: (rand(b, s), rand(b, s + 2))),
    "slices": (lambda x: x[:, 1:] * 2 + x[:, :-1], lambda b, s: (rand(b, s + 3),)),
    "copied": (lambda x: (x.t() * 2).contiguous().cos(), lambda b, s: (rand(b + 1, s + 1),)),
    "extremes": (lambda x: x.argmax(-1) + x.amax(-1).long(), lambda b, s: (rand(b, s),)),
    "positions": (
        lambda x: x.masked_fill(torch.arange(x.shape[1]) > 2, 0.0) * x.shape[0],
        lambda b, s: (rand(b, s),),
    ),
    "gathered": (
        lambda x, i: x.gather(1, i) * 2,
        lambda b, s: (rand(b, s + 1), torch.randint(0, s + 1, (b, s))),
    ),
    "written": (lambda x: x.mul_(2).add_(1), lambda b, s: (rand(b, s),)),
}


def compare(fn, make, shapes, graphs=2, compiled=False):
    """Returns the sources of the last graph."""
    frameloom.reset()
    with on_a_gpu(compiled) as sources:
        jitted = jit(fn)
        for shape in shapes:
            args = make(*shape)
            own = tuple(a.clone() for a in args)
            torch.testing.assert_close(jitted(*args), fn(*own), rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(args, own, rtol=1e-3, atol=1e-4)
    assert frameloom.stats()["graphs"] <= graphs and not frameloom.stats()["breaks"]
    return sources[-1]


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_one_text_for_all_sizes(name):
    sources = compare(*CASES[name], SHAPES)
    assert any(s.sizes or isinstance(s.grid[0], Size) for s in sources)


@pytest.mark.parametrize("name", ["softmax", "extremes", "mean"])
@torch.no_grad()
def test_texts_are_compiled(name):
    compare(*CASES[name], SHAPES[:3], compiled=True)


@torch.no_grad()
def test_a_decoder():
    make = lambda b, s: (torch.randint(0, 50, (b, s)),)
    compare(Decoder().eval(), make, ((2, 3), (1, 5), (3, 1)))


LONG = {
    "flat": (lambda x: (x * x).sum(), lambda n, m: (rand(n * 1000, m),), ((2, 33), (40, 5), (3, 7), (90, 2))),
    "rows": (
        lambda x: x.var(1, correction=0),
        lambda n, m: (rand(n, m * 3000) + 100,),
        ((2, 13), (3, 15), (1, 7), (4, 2)),
    ),
    "columns": (
        lambda x: x.var(0, correction=0),
        lambda n, m: (rand(n * 500, m) + 50,),
        ((20, 40), (33, 50), (3, 7), (90, 2)),
    ),
    "images": (
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda n, m: (rand(n, 3, m * 10, 64) + 10,),
        ((20, 4), (30, 5), (7, 2), (2, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
@torch.no_grad()
def test_long_reductions_are_cut_into_more_chunks(name):
    fn, make, shapes = LONG[name]
    sources = compare(fn, make, shapes)
    assert len(sources) >= 2


@torch.no_grad()
def test_rows_that_start_anywhere_are_read_wide():
    fn = lambda x: torch.softmax(x.float(), -1)
    make = lambda n, m: (rand(n, m * 100 + 57).bfloat16(),)
    shapes = ((2, 3), (3, 5), (2, 0), (3, 20), (1, 327), (5, 1), (2, 41))
    sources = compare(fn, make, shapes, compiled=True)
    assert any("// 4 * 4" in s.text and "tail" in s.general for s in sources)


@torch.no_grad()
def test_rows_longer_than_the_captured_ones_are_looped_over():
    (source,) = compare(*CASES["softmax"], ((2, 20), (3, 32), (2, 129), (2, 1000), (1, 5)))
    assert source.limit[1] == 128 and "tl.range" not in source.text
    assert "<= 128:" in source.general and "tl.range" in source.general


@torch.no_grad()
def test_what_is_known_of_a_size_is_said():
    fn = lambda x: x.relu() + 1
    (source,) = compare(fn, lambda b, s: (rand(b, s, 48),), ((2, 3), (3, 5)))
    assert source.signature[2:] == ("i32!",)
    (source,) = compare(fn, lambda b, s: (rand(b, s),), ((2, 3), (4, 8)))
    assert source.signature[2:] == ("i32?",)
    (source,) = compare(fn, lambda b, s: (rand(b, s),), ((2, 3), (3, 5)))
    assert source.signature[2:] == ("i32",)


def test_room_in_32_bits_is_a_condition_where_there_is():
    shape_env = ShapeEnv()
    shape_env.relaxed = True
    a, b = shape_env.symbol(1000, None), shape_env.symbol(70000, None)
    assert narrow((0, a * b - 1)) and len(shape_env.at_least_0) == 1
    assert narrow((0, a * b + 5 - a)) and narrow((-5, b)) and len(shape_env.at_least_0) == 1
    assert not narrow((0, a * b * 64)) and len(shape_env.at_least_0) == 1


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return torch.softmax(self.down(F.gelu(self.norm(self.up(x)))), -1)


def test_gradients():
    module = Rows()

    def gradients(fn, x):
        module.zero_grad()
        x = x.clone().requires_grad_()
        fn(x).square().sum().backward()
        return [x.grad, *(p.grad for p in module.parameters())]

    frameloom.reset()
    with on_a_gpu():
        jitted = jit(module.forward)
        for b, s in ((2, 3), (1, 5), (3, 1)):
            x = rand(b, s, 8)
            found = gradients(jitted, x)
            torch.testing.assert_close(found, gradients(module, x), rtol=1e-3, atol=1e-4)
    assert frameloom.stats()["graphs"] <= 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_places_that_32_bits_have_no_room_for(dynamic):
    long = torch.zeros((), dtype=torch.int8).expand(2**31 + 1027)
    with (
        on_a_gpu(compiled=True) as sources,
        mock.patch.object(pipeline, "assemble", lambda *_: lambda *_: (torch.zeros(()),)),
    ):
        jit(lambda x: x.argmax(), dynamic=dynamic)(long)
    assert sources


def test_a_size_that_many_tensors_get():
    """A list's numbers are written before it runs, so each tensor keeps a kernel of its own."""

    def f(x, tensors):
        for t in tensors:
            t.add_(x.shape[0])

    with on_a_gpu(compiled=True):
        jitted = jit(f, dynamic=True)
        for rows in (3, 7):
            tensors = [torch.tensor([k]) for k in range(12)]
            jitted(torch.zeros(rows, 2), tensors)
            assert [int(t) for t in tensors] == [k + rows for k in range(12)]
