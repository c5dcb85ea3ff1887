"""Random numbers on a GPU: the same as eager's, by the same generator, which is as far on afterwards."""

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom.backend.draws import generator_of

pytestmark = pytest.mark.gpu
SHAPES = [
    (1,), (2,), (7,), (8,), (250,), (1026,), (64, 129), (8, 16, 24), (4096, 64), (270336,), (270338,), (540680,),
    (1081345,), (1081348,), (1081352,), (33, 77, 401), (2162696,), (4000002,), (16, 512, 768), (3, 1, 5, 7),
]  # fmt: skip
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def offset():
    return torch.cuda.default_generators[torch.cuda.current_device()].get_offset()


def flat(result):
    return result if isinstance(result, tuple) else (result,)


def agree(f, *args, seed=7, jitted=None):
    """Bit by bit, twice in a row, and what is drawn next."""
    jitted = jitted or frameloom.jit(f)
    found = []
    for fn in (f, jitted, jitted):
        torch.manual_seed(seed)
        results = [*flat(fn(*args)), *flat(fn(*args))]
        found.append(([*results, torch.rand(3, device="cuda")], offset()))
    for results, at in found[1:]:
        assert at == found[0][1]
        for r, e in zip(results, found[0][0], strict=True):
            assert (r.dtype, r.shape, r.stride()) == (e.dtype, e.shape, e.stride())
            assert torch.equal(r, e)
    return jitted


def draws(f, *args):
    """Library calls of the compiled program."""
    return [c for g in frameloom.explain(f)(*args).graphs for c in g.library_calls]


def test_this_pytorch_draws_as_expected():
    found = generator_of("cuda")
    assert found is not None
    assert dict(found.widest)[4] >= 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_masks_of_dropout(shape, dtype):
    x = torch.randn(shape, device="cuda").to(dtype)
    agree(lambda x: torch.native_dropout(x, 0.3, True), x)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_dropout_with_its_neighbours(dtype):
    x, y = torch.randn(2, 64, 768, device="cuda").to(dtype).unbind()
    f = lambda x, y: F.dropout(torch.relu(x), 0.1) * 2 + y
    agree(f, x, y)
    assert draws(f, x, y) == []


def test_the_default_seed_and_others():
    x = torch.randn(64, 768, device="cuda")
    f = lambda x: F.dropout(x, 0.1) + x
    jitted = frameloom.jit(f)
    for set_seed in (
        lambda: torch.manual_seed(2**63 + 5),
        lambda: torch.cuda.manual_seed(3),
        lambda: torch.manual_seed(-1),
        lambda: torch.cuda.set_rng_state(state),
    ):
        state = torch.cuda.get_rng_state()
        set_seed()
        expected, after = f(x), offset()
        set_seed()
        assert torch.equal(jitted(x), expected)
        assert offset() == after


def test_several_draws_and_the_librarys_between():
    x = torch.randn(50, 1000, device="cuda")

    def f(x):
        y = F.dropout(x, 0.3)
        F.dropout(x, 0.3)
        p = torch.bernoulli(torch.sigmoid(x))
        return F.dropout(y, 0.5) + p * torch.rand_like(x), torch.randn_like(x) + y

    agree(f, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1,), (1000,), (64, 129), (1081345,), (33, 77, 401), (2162696,)], ids=str
)
def test_filled_tensors(shape, dtype):
    x = torch.randn(shape, device="cuda").to(dtype)
    agree(lambda x: x * torch.rand_like(x), x)
    agree(lambda x: x + torch.empty_like(x).uniform_(-1, 1), x)
    agree(lambda x: x * torch.empty_like(x).bernoulli_(0.3), x)


@pytest.mark.parametrize("make", [
    lambda: torch.randn(4, 16, 20, 24, device="cuda").to(memory_format=torch.channels_last),
    lambda: torch.randn(3, 5, 7, 9, device="cuda").to(memory_format=torch.channels_last),
    lambda: torch.randn(64, 48, device="cuda").t(),
    lambda: torch.randn(63, 47, device="cuda").t(),
    lambda: torch.randn(64, 64, device="cuda")[:, :48],
    lambda: torch.randn(64, 1, device="cuda").expand(64, 48),
    lambda: torch.randn(4, 8, 6, 16, device="cuda").transpose(1, 2),
])  # fmt: skip
def test_layouts(make):
    x = make()
    agree(lambda x: torch.native_dropout(x, 0.3, True), x)
    agree(lambda x: torch.rand_like(x) + x, x)


def test_alignments():
    base = torch.randn(1 << 16, device="cuda")
    f = lambda x: F.dropout(x, 0.3) + 1
    jitted = frameloom.jit(f)
    for start in (0, 1, 2, 4, 8, 3):
        agree(f, base[start : start + 4096], jitted=jitted)

    def g(base):
        x = base[2:4098]
        x.neg_()
        return F.dropout(x, 0.3) + F.dropout(torch.relu(base)[1:4097], 0.3)

    first, second = base.clone(), base.clone()
    torch.manual_seed(1)
    expected = g(first)
    torch.manual_seed(1)
    assert torch.equal(frameloom.jit(g)(second), expected)
    assert torch.equal(first, second)


def test_recorded_into_a_graph():
    x = torch.randn(64, 768, device="cuda")
    f = frameloom.jit(lambda x: F.dropout(x, 0.5) + 1)
    f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = f(x)
    torch.manual_seed(3)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out)
    torch.manual_seed(3)
    assert torch.equal(first, F.dropout(x, 0.5) + 1)


def test_with_little_overhead():
    """mode="reduce-overhead" replays nothing that draws."""
    x = torch.randn(64, 64, device="cuda")

    def f(x):
        for _ in range(10):
            x = F.dropout(torch.sort(x, -1).values, 0.1)
        return x

    agree(f, x, jitted=frameloom.jit(f, mode="reduce-overhead"))


def test_a_module_in_training():
    block = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 64), torch.nn.Dropout(0.2)
    )  # fmt: skip
    block = block.cuda().train()
    x = torch.randn(512, 64, device="cuda")
    f = lambda x: x + block(x)
    jitted = frameloom.jit(f)
    torch.manual_seed(5)
    expected = f(x)
    torch.manual_seed(5)
    torch.testing.assert_close(jitted(x), expected)


def test_what_is_tried_while_compiling_draws_nothing():
    """Layouts of varying sizes are tried with small tensors; on a default device, too."""

    def fn(x, y):
        return torch.rand(x.shape) + y

    with torch.device("cuda"):
        jitted = frameloom.jit(fn)
        for rows, others in ((2, 2), (1, 2), (3, 3), (5, 5)):
            x, y = torch.zeros(rows, 1), torch.zeros(1, others).t()
            found = []
            for side in (fn, jitted):
                torch.manual_seed(0)
                found.append(side(x, y))
            assert torch.equal(*found)


@pytest.mark.parametrize("values", ["a number", "from the CPU"])
@pytest.mark.parametrize("indexed", ["cpu", "cuda"])
def test_indices_that_lie_elsewhere(indexed, values):
    """What precedes a refusal is done; a graph that draws on a GPU cannot start anew."""

    def fn(x, places, done):
        y = F.dropout(torch.ones(4, device="cuda"), 0.5)
        done.append(y)
        x[places] = 1.0 if values == "a number" else torch.ones(1)
        return y, x

    found = []
    for side in (fn, frameloom.jit(fn)):
        for places in ("cpu", "cuda"):
            x, done = torch.zeros(4, device=indexed), []
            try:
                side(x, torch.tensor([1], device=places), done)
                found.append((x.tolist(), len(done)))
            except RuntimeError as error:
                found.append((str(error), len(done)))
    assert found[:2] == found[2:]


GAPS = {
    "plain": lambda *shape: torch.ones(shape, device="cuda"),
    "steps": lambda *shape: torch.ones([2 * n for n in shape], device="cuda")[::2, ::2],
    "a column": lambda *shape: torch.ones(*shape, 2, device="cuda")[..., 0],
}


@pytest.mark.parametrize("written", [False, True])
def test_dropout_lies_as_it_does_for_sizes_of_1(written):
    """Behind calls of other sizes: the CPU lays it out otherwise."""

    def f(x):
        made = F.dropout(x, 0.5)
        return made.abs_() if written else made

    jitted = frameloom.jit(f)
    for shape in ((3, 3), (4, 5), (1, 1), (1, 4), (3, 1), (1, 1)):
        for layout in GAPS.values():
            x = layout(*shape)
            assert jitted(x).stride() == f(x).stride()
