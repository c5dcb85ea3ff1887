"""Arena plans: no two live buffers overlap, and memory is reused."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from frameloom.ir.dtype import DType
from frameloom.ir.memory import ALIGNMENT, LARGE, SMALL, plan_memory, size_in_bytes
from frameloom.ir.program import Buffer, Extern, Kind, Program, View


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
    plan = plan_memory(program)
    last = {
        b: max([k, *(j for j, u in enumerate(uses) if k in u and k < j)])
        for k, b in enumerate(buffers)
    }
    for i, a in enumerate(buffers):
        assert plan.offsets[a] % ALIGNMENT == 0
        assert plan.offsets[a] + size_in_bytes(a) <= plan.arena_bytes
        for j, b in enumerate(buffers[:i]):
            if last[b] >= i and j < i and size_in_bytes(a) and size_in_bytes(b):
                first, second = plan.offsets[a], plan.offsets[b]
                assert first + size_in_bytes(a) <= second or second + size_in_bytes(b) <= first


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
