"""Arena plans: no two live buffers overlap, and memory is reused."""

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from frameloom.ir.dtype import DType
from frameloom.ir.passes.memory import ALIGNMENT, LARGE, SMALL, plan_memory, size_in_bytes
from frameloom.ir.program import Buffer, Extern, Kind, Program, View
from frameloom.ir.symbolic.atoms import evaluated
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.shape_env import ShapeEnv


def chain(sizes, uses, device="cpu"):
    """Step k makes buffer k from earlier ones."""
    buffers = [
        Buffer(f"b{k}", DType.F32, (n,), (1,), Kind.TEMP, device=device)
        for k, n in enumerate(sizes)
    ]
    steps = []
    for k, b in enumerate(buffers):
        args = tuple(View(buffers[u], buffers[u].shape, (1,)) for u in uses[k] if u < k)
        steps.append(Extern("aten.mm.default", args, (), (b,)))
    return buffers, Program((), tuple(steps), ())


@settings(deadline=None)
@given(st.data(), st.lists(st.integers(0, 100), min_size=1, max_size=12))
def test_live_buffers_do_not_overlap(data, sizes):
    uses = [
        data.draw(st.lists(st.integers(0, max(k - 1, 0)), max_size=3)) for k in range(len(sizes))
    ]
    buffers, program = chain(sizes, uses)
    assert_apart(buffers, uses, plan_memory(program), sizes, int)


def assert_apart(buffers, uses, plan, sizes, value):
    """Buffers that are alive at one time share no bytes; `value`: of a number of the plan."""
    last = {
        b: max([k, *(j for j, u in enumerate(uses) if k in u and k < j)])
        for k, b in enumerate(buffers)
    }
    starts = [value(plan.offsets[b]) for b in buffers]
    ends = [start + 4 * value(n) for start, n in zip(starts, sizes, strict=True)]
    for i in range(len(buffers)):
        assert starts[i] % ALIGNMENT == 0
        assert ends[i] <= value(plan.arena_bytes)
        for j, b in enumerate(buffers[:i]):
            if last[b] >= i and starts[i] < ends[i] and starts[j] < ends[j]:
                assert ends[i] <= starts[j] or ends[j] <= starts[i]


def test_live_buffers_of_sizes_that_vary_do_not_overlap():
    draw = random.Random(0)
    for _ in range(60):
        shape_env = ShapeEnv()
        n = shape_env.symbol(10, None)
        sizes = [draw.choice([n, n + 7, 2 * n, 40]) for _ in range(8)]
        uses = [[draw.randrange(k) for _ in range(draw.randint(1, 2))] if k else [] for k in range(8)]  # fmt: skip
        buffers, program = chain(sizes, uses)
        plan = plan_memory(program)
        for size in (2, 10, 33):

            def value(x, size=size):
                return evaluated(x, lambda _: size) if isinstance(x, Size) else x

            assert_apart(buffers, uses, plan, sizes, value)


def test_bytes_go_to_the_last_element():
    for shape, strides, count in [((17,), (1,), 17), ((3, 4), (10, 2), 27), ((2, 0), (1, 1), 0), ((5, 2), (0, 1), 2)]:  # fmt: skip
        assert size_in_bytes(Buffer("b", DType.F32, shape, strides, Kind.TEMP)) == 4 * count


def test_a_chain_needs_two_places():
    _, program = chain([1000] * 10, [[k - 1] if k else [] for k in range(10)])
    assert plan_memory(program).arena_bytes == 2 * 4032


def test_large_buffers_on_a_gpu_have_lives_of_their_own():
    for device in ("cpu", "cuda:0"):
        buffers, program = chain([1000, LARGE, 1000], [[], [0], [1]], device)
        placed = set(plan_memory(program).offsets)
        assert placed == (set(buffers) if device == "cpu" else {buffers[0], buffers[2]})


def test_each_device_has_an_arena_of_its_own():
    first, second, other = (
        Buffer(name, DType.F32, (1000,), (1,), Kind.TEMP, device=device)
        for name, device in [("a", "cuda:0"), ("b", "cuda:0"), ("c", "cpu")]
    )
    step = Extern("aten.mm.default", (View(first, (1000,), (1,)),), (), (second, other))
    plan = plan_memory(Program((), (step,), ()))
    assert (plan.offsets[first], plan.offsets[other]) != (plan.offsets[second], plan.offsets[other])
    assert plan.offsets[other] == 0
    assert plan.arena_bytes == 3 * 4032


def test_small_buffers_with_one_life_lie_together():
    """As those of a step over a list do, beside one whose life is another."""
    small = [Buffer(f"s{k}", DType.F32, (k,), (1,), Kind.TEMP) for k in range(1, 2000)]
    small = [b for b in small if size_in_bytes(b) <= SMALL]
    large = Buffer("large", DType.F32, (100000,), (1,), Kind.TEMP)
    views = tuple(View(b, b.shape, (1,)) for b in small)
    made = Extern("aten.mm.default", (), (), (*small, large))
    steps = (made, Extern("aten.mm.default", views, (), ()), Extern("aten.mm.default", (View(large, (100000,), (1,)),), (), ()))  # fmt: skip
    plan = plan_memory(Program((), steps, ()))
    places = sorted((plan.offsets[b], size_in_bytes(b)) for b in [*small, large])
    assert all(a + n <= b for (a, n), (b, _) in pairwise(places))
    assert plan.arena_bytes == sum(-(-n // ALIGNMENT) * ALIGNMENT for _, n in places)
