"""Random numbers on CUDA where there is no GPU: captured on fakes, fused, and run under Triton's interpreter, against a
generator written out in plain Python."""

import contextlib
import math

import pytest
import torch
import torch.nn.functional as F

from frameloom.capture import _capture
from frameloom.capture.graph_passes.attention_pattern import recognised
from frameloom.codegen.schedule.partition import launches
from frameloom.ir import interp, philox
from frameloom.ir.library import DRAW
from frameloom.ir.lower import lower
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.program import Extern, Kernel, View
from frameloom.ir.text import parse, show
from frameloom.ir.verify import verify
from tests.capture.capturing import GraphRunner
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu
from tests.codegen import triton_kernels

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture

BLOCKS = 3
GENERATOR = philox.Generator(BLOCKS, ((4, 4), (2, 8), (8, 2)))
SEED, OFFSET = 0x9ABCDEF012345678, 4 * (2**32 + 3)


class Plain:
    """Eager's draws, one number at a time."""

    def __init__(self, seed=SEED, offset=OFFSET):
        self.seed, self.offset = seed, offset

    def words(self, block, thread):
        a, b, c, d = block & 0xFFFFFFFF, block >> 32, thread & 0xFFFFFFFF, thread >> 32
        first, second = self.seed & 0xFFFFFFFF, self.seed >> 32
        for _ in range(10):
            low, high = a * 0xD2511F53, c * 0xCD9E8D57
            a, b, c, d = (
                (high >> 32) ^ b ^ first, high & 0xFFFFFFFF, (low >> 32) ^ d ^ second, low & 0xFFFFFFFF,
            )  # fmt: skip
            first, second = (first + 0x9E3779B9) % 2**32, (second + 0xBB67AE85) % 2**32
        return a, b, c, d

    def numbers(self, count, width=1):
        """In the order of memory.  Simulates the threads of eager's kernels, a turn after the other."""
        threads = 256 * min(BLOCKS, math.ceil(count / 256))
        found, base, turn = [0] * count, self.offset // 4, 0
        served = width if width > 1 else 4
        while turn * threads * served < count:
            for thread in range(threads):
                if width == 1:
                    places = [turn * threads * 4 + thread + k * threads for k in range(4)]
                else:
                    places = [(turn * threads + thread) * width + k for k in range(width)]
                blocks = [turn * max(1, width // 4) + k for k in range(max(1, width // 4))]
                drawn = [w for b in blocks for w in self.words(base + b, thread)]
                for place, word in zip(places, drawn, strict=False):
                    if place < count:
                        found[place] = word
            turn += 1
        self.offset += (math.ceil(count / (threads * 4))) * 4
        return torch.tensor(found).float() * 2.0**-32 + 2.0**-33

    # --- what eager makes of them

    def dropout(self, x, p, width=None):
        dense = (
            x.is_contiguous()
            or x.permute(sorted(range(x.dim()), key=x.stride, reverse=True)).is_contiguous()
        )
        widest = dict(GENERATOR.widest)[x.element_size()] if dense else 1
        while x.numel() % widest:
            widest //= 2
        numbers = self.numbers(x.numel(), width or widest)
        out = torch.empty_like(x)
        strides = out.stride() if (width or widest) > 1 else torch.empty(x.shape).stride()
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        kept = torch.tensor(1 - p, dtype=wide)
        mask = torch.empty_like(x, dtype=torch.bool)
        mask.copy_(numbers.as_strided(x.shape, strides) < kept)
        return (x.to(wide) * mask * (1 / kept.double()).to(wide)).to(x.dtype), mask

    def rand(self, like, low=0.0, high=1.0):
        numbers = self.numbers(like.numel()).as_strided(like.shape, torch.empty_like(like).stride())
        value = (numbers * (high - low) + low).to(like.dtype)
        return torch.where(value == high, torch.tensor(low, dtype=like.dtype), value)

    def bernoulli(self, like, p):
        numbers = self.numbers(like.numel()).as_strided(like.shape, torch.empty_like(like).stride())
        return (numbers.double() < p).to(like.dtype)


class Runner(GraphRunner):
    def compile_graph(self, graph, trail):
        graph = recognised(graph)
        program = lower(graph.graph, graph.constants, generator_of=lambda device: GENERATOR)
        verify(program, blame="lower")
        text = show(parse(show(program)))
        assert show(parse(text)) == text
        self.program, self.graph = fuse(program), graph
        verify(self.program, blame="fuse")
        return super().compile_graph(graph, trail)


def captured(fn, *args):
    runner = Runner()
    with torch.no_grad(), contextlib.suppress(RuntimeError):
        _capture.JitFunction(fn, runner)(*args)
    assert not runner.breaks, runner.breaks[0].text
    return runner.program


def run(program, inputs, generator, library):
    """The outputs of `program` by Triton's interpreter.  `library` stands for the library's random ops."""
    memory = dict(zip((b.name for b in program.inputs), inputs, strict=True))
    for step in program.steps:
        if isinstance(step, Kernel):
            triton_kernels.run(launches(step, triton_kernels.TINY), memory, triton_kernels.TINY)
        elif step.target == DRAW:
            assert step.args[2] is None or step.args[2].buffer in program.inputs
            given = generator.seed, generator.offset
            generator.offset += step.args[1]
            memory.update(zip((b.name for b in step.results), given, strict=True))
        else:
            arguments = [
                memory[a.buffer.name].as_strided(a.shape, a.strides, a.offset)
                if isinstance(a, View)
                else a
                for a in step.args
            ]
            (result,) = step.results
            memory[result.name] = library[step.target](generator, *arguments)
    return [memory[o.buffer.name].as_strided(o.shape, o.strides, o.offset) for o in program.outputs]


def check(fn, plain, *args, library=None, kernels=None, seed=SEED):
    """`fn(*args)` compiled is what `plain(generator, *args)` is, and the generator is as far on."""
    program = captured(fn, *args)
    fused, eager = Plain(seed), Plain(seed)
    found, expected = run(program, args, fused, library or {}), plain(eager, *args)
    for f, e in zip(found, expected, strict=True):
        assert (f.dtype, f.stride()) == (e.dtype, e.stride())
        # Triton's interpreter does not round to the nearest bf16.
        tolerance = (
            {"rtol": 0.01, "atol": 0.02} if f.dtype == torch.bfloat16 else {"rtol": 0, "atol": 0}
        )
        torch.testing.assert_close(f, e, equal_nan=True, **tolerance)
        if f.is_floating_point():
            assert torch.equal(f.signbit(), e.signbit())
    assert fused.offset == eager.offset
    if kernels is not None:
        assert sum(isinstance(s, Kernel) for s in program.steps) == kernels
    return program


def test_known_answers():
    full = 0xFFFFFFFF
    for key, (block, thread), answer in [
        (0, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            full << 32 | full,
            (full << 32 | full,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
    ]:
        assert Plain(key).words(block, thread) == answer


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 256, 768 * 8, 768 * 8 * 3 + 16])
def test_the_model_is_the_generator(width, count):
    plain = Plain()
    seed = torch.tensor(SEED - 2**64)
    stream = philox.Stream(256 * min(BLOCKS, -(-count // 256)), width)
    found = philox.uniform(philox.words(seed, torch.tensor(OFFSET), torch.arange(count), stream))
    assert torch.equal(found, plain.numbers(count, width))
    assert philox.Generator(BLOCKS, ()).increment(count) == plain.offset - OFFSET


SHAPES = [(1,), (7,), (4, 64), (3, 5, 7), (1030,), (33, 64), (9, 768), (3100,), (2, 6, 512)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_dropout(shape, dtype):
    x = torch.randn(shape).to(dtype)
    x.view(-1)[0] = math.inf
    check(
        lambda x: torch.native_dropout(x, 0.3, True), lambda g, x: g.dropout(x, 0.3), x, kernels=1
    )


def test_dropout_with_its_neighbours_is_one_kernel():
    x, y = torch.randn(6, 48), torch.randn(6, 48)
    check(
        lambda x, y: F.dropout(torch.relu(x), 0.1) + y,
        lambda g, x, y: [g.dropout(torch.relu(x), 0.1)[0] + y], x, y, kernels=1,
    )  # fmt: skip


def test_dropout_before_a_reduction():
    x = torch.randn(6, 48)
    check(
        lambda x: F.dropout(x, 0.4).amax(-1),
        lambda g, x: [g.dropout(x, 0.4)[0].amax(-1)],
        x,
        kernels=1,
    )


@pytest.mark.parametrize(
    "x",
    [torch.randn(4, 8, 6).transpose(0, 2), torch.randn(3, 5, 7).transpose(0, 2), torch.randn(8, 16)[:, :12]],
    ids=["dense", "dense and odd", "gaps"],
)  # fmt: skip
def test_layouts_of_dropout(x):
    check(lambda x: torch.native_dropout(x, 0.3, True), lambda g, x: g.dropout(x, 0.3), x)


def test_dropout_in_place_on_a_view():
    """What eager reads is memory of the input, at an offset."""
    base = torch.randn(1027)

    def f(base):
        x = base.narrow(0, 1, 1024)
        x.neg_()
        return F.dropout(x, 0.3)

    def plain(g, base):
        return [g.dropout(-base[1:1025], 0.3, width=1)[0]]

    program = captured(f, base.clone())
    generator, eager = Plain(), Plain()
    found = run(program, [base.clone()], generator, {})
    assert torch.equal(found[0], plain(eager, base)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rand(dtype):
    x = torch.randn(5, 1030).to(dtype)
    check(lambda x: torch.rand_like(x) + x, lambda g, x: [g.rand(x) + x], x, kernels=1)
    check(
        lambda x: x + x.new_empty(x.shape).uniform_(-2, 2),
        lambda g, x: [x + g.rand(x, -2.0, 2.0)],
        x,
        kernels=1,
    )


def test_rand_lies_as_it_is_told_to():
    x = torch.randn(6, 5).t()
    check(lambda x: torch.rand_like(x) + x, lambda g, x: [g.rand(x) + x], x, kernels=1)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 1.0])
def test_bernoulli(p):
    x = torch.randn(3, 333)
    check(
        lambda x: torch.empty_like(x).bernoulli_(p) * 2 + x,
        lambda g, x: [g.bernoulli(x, p) * 2 + x],
        x,
    )


def test_draws_are_taken_in_order_and_all_of_them():
    x = torch.randn(40, 16)

    def f(x):
        first = F.dropout(x, 0.3)
        F.dropout(x, 0.9)  # nobody reads it
        noise = torch.randn_like(x)
        return first + F.dropout(x, 0.6), noise + torch.rand_like(x)

    def plain(g, x):
        first = g.dropout(x, 0.3)[0]
        g.dropout(x, 0.9)
        noise = g.rand(x)
        return first + g.dropout(x, 0.6)[0], noise + g.rand(x)

    check(f, plain, x, library={"aten.randn_like.default": lambda g, x: g.rand(x)})


@pytest.mark.parametrize("fn, reason", [
    (lambda x: torch.native_dropout(x, 0.3, False), "not training"),
    (lambda x: torch.native_dropout(x, 1.0, True), "everything is dropped"),
    (lambda x: torch.rand_like(x, dtype=torch.float64) + 1, "double precision"),
    (lambda x: torch.empty_like(x).uniform_(0.1, 0.7) + x, "bounds that round"),
    (lambda x: (torch.rand_like(x), x.bernoulli_(0.5)), "nothing is computed from the numbers"),
])  # fmt: skip
def test_the_library_draws(fn, reason):
    program = captured(fn, torch.randn(4, 4))
    assert not any(isinstance(s, Extern) and s.target == DRAW for s in program.steps), reason


def test_the_lowered_program_means_the_same():
    x = torch.randn(9, 40)
    program = captured(lambda x: F.dropout(x, 0.3) * 2, x)
    take = lambda increment: (SEED - 2**64, OFFSET)
    (found,) = interp.run(program, [x], take)
    assert torch.equal(found, Plain().dropout(x, 0.3)[0] * 2)


@pytest.mark.parametrize("dtype, shape, expected", [
    (torch.float32, (64, 48), True),
    (torch.float16, (3, 1000), True),
    (torch.float64, (6, 64), True),
    (torch.float32, (33, 31), False),
], ids=str)  # fmt: skip
def test_neighbours_share_what_is_drawn_for_them(dtype, shape, expected):
    x = torch.randn(shape).to(dtype)
    by_columns = lambda x: (F.dropout(x, 0.3) + 1).amax(0)
    for f, plain in (
        (lambda x: F.dropout(x, 0.3) + 1, lambda g, x: [g.dropout(x, 0.3)[0] + 1]),
        (
            lambda x: (F.dropout(x, 0.3) + 1).amax(-1),
            lambda g, x: [(g.dropout(x, 0.3)[0] + 1).amax(-1)],
        ),
        (by_columns, lambda g, x: [(g.dropout(x, 0.3)[0] + 1).amax(0)]),
    ):
        program = check(f, plain, x)
        (kernel,) = (s for s in program.steps if isinstance(s, Kernel))
        (source,) = triton_kernels.generate(
            launches(kernel, triton_kernels.TINY), triton_kernels.TINY
        )
        if f is not by_columns:
            assert ("interleave" in source.text) == expected


def test_what_eager_reads_from_an_unknown_place_is_drawn_by_the_library():
    """Which numbers dropout draws depends on the address of the input whose memory it reads."""

    class Forgetful(Runner):
        def compile_graph(self, graph, trail):
            for node in graph.graph.nodes:
                if "source" in node.meta:
                    node.meta["source"] = philox.Source((1,), 0, "input_9")
            return super().compile_graph(graph, trail)

    runner = Forgetful()
    with torch.no_grad(), contextlib.suppress(RuntimeError):
        _capture.JitFunction(lambda x: F.dropout(x, 0.3) + 1, runner)(torch.randn(1024))
    targets = [s.target for s in runner.program.steps if isinstance(s, Extern)]
    assert targets == ["aten.native_dropout.default"]
