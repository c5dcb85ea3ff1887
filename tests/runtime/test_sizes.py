"""Plans whose sizes change from call to call."""

import contextlib
import itertools
import sys
import threading
import weakref

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import (
    KernelCall,
    PlanSpec,
    SizeCall,
)
from tests.runtime.sized_plans import (
    R,
    Refused,
    buffer,
    extern,
    flat,
    never,
    number,
    plan,
    view,
)


def doubled(kernel, **more):
    """x -> 2 * x for x of one dimension."""
    return plan(
        [flat("input", R(0)), flat("output", R(0))],
        [("dim", 0, 0)],
        [KernelCall(kernel("twice"), (0, 1), sizes=(0,))],
        [view(1, (R(0),), (1,))],
        **more,
    )


def test_a_kernel_and_its_output_follow_the_size(kernel):
    p = doubled(kernel)
    for n in (3, 3, 8, 0, 1, 8, 70000, 3):
        x = torch.randn(n)
        (out,) = p(x)
        assert out.shape == (n,) and torch.equal(out, 2 * x)


def test_strides_and_offsets_are_read(kernel):
    p = plan(
        [buffer("input", (R(0), R(1)), (R(2), 1)), buffer("output", (R(0), R(1)), (R(1), 1))],
        [("dim", 0, 0), ("dim", 0, 1), ("stride", 0, 0), ("offset", 0)],
        [KernelCall(kernel("rows"), (0, 1), sizes=(0, 1, 2))],
        [view(1, (R(0), R(1)), (R(1), 1)), (R(3),), (R(2),)],
    )
    base = torch.randn(10, 12)
    for x in (base, base[2:7, 3:8], base[:, 5:6], base[4:4], torch.randn(3, 4)):
        out, offset, stride = p(x)
        assert torch.equal(out, 2 * x) and out.is_contiguous()
        assert (offset, stride) == (x.storage_offset(), x.stride(0))


COMPUTED = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "neg": lambda a, b: -a,
}


def calculator():
    """(a, b) -> all that is computed from two ints."""
    ops = [(op, 0) if op == "neg" else (op, 0, 1) for op in COMPUTED]
    outputs = [(R(2 + i),) for i in range(len(ops))]
    sizes = [("number", 0), ("number", 1), *ops]
    return plan([number(), number()], sizes, [], outputs, number_inputs=2)


def test_computed_sizes_have_pythons_meaning():
    p = calculator()
    for a in (7, -7, 0, 2**62, -(2**62)):
        for b in (2, -2, 3, -3, 1):
            if abs(a * b) < 2**63:
                assert p(a, b) == tuple(f(a, b) for f in COMPUTED.values())


@pytest.mark.parametrize("pair", [(1, 0), (2**62, 4), (-(2**63), 1), (2**63 - 1, -1), (2**63, 1)])
def test_what_cannot_be_computed_is_refused(pair):
    p = calculator()
    for _ in range(2):
        with pytest.raises(Refused):
            p(*pair)
        assert p(7, 2) == tuple(f(7, 2) for f in COMPUTED.values())


def test_constants_among_sizes():
    p = plan(
        [flat("input", R(0))],
        [("dim", 0, 0), ("const", 3), ("mul", 0, 1), ("const", -(2**63))],
        [],
        [(R(2),), (R(3),), (None,)],
    )
    assert p(torch.zeros(5)) == (15, -(2**63), None)


def test_shapes_that_no_tensor_has_are_refused(kernel):
    for op, other in (("sub", 4), ("mul", 2**62)):
        p = plan(
            [flat("input", R(0)), flat("output", R(2))],
            [("dim", 0, 0), ("const", other), (op, 0, 1)],
            [KernelCall(kernel("twice"), (0, 1), sizes=(2,))],
            [view(1, (R(2),), (1,))],
        )
        with pytest.raises(Refused):
            p(torch.zeros(1))
        n = 9 if op == "sub" else 0
        assert p(torch.zeros(n))[0].shape == (n - 4 if op == "sub" else 0,)


def through_scratch(kernel, *more_steps):
    """x -> 4 * x by way of scratch memory, of which the second half is used."""
    return plan(
        [
            flat("input", R(0)),
            flat("arena", R(0), offset=R(2)),
            flat("output", R(0)),
        ],
        [("dim", 0, 0), ("const", 4), ("mul", 0, 1), ("add", 2, 2)],
        [
            KernelCall(kernel("twice"), (0, 1), sizes=(0,)),
            *more_steps,
            KernelCall(kernel("twice"), (1, 2), sizes=(0,)),
        ],
        [view(2, (R(0),), (1,))],
        arena_bytes=R(3),
    )


def test_scratch_memory_grows_and_shrinks(kernel):
    p = through_scratch(kernel)
    for n in (4, 4, 1000, 20, 0, 100_000, 1 << 23, 5, *[7] * 100, 100_000):
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 4 * x)
    assert p.arena_bytes == 800_000


def addresses_seen(kernel, sizes):
    """Where the intermediate lay in each call."""
    seen = []
    look = extern("t", lambda t: seen.append(t.data_ptr()), (view(1, (R(0),), (1,)),), ())
    p = through_scratch(kernel, look)
    for n in sizes:
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 4 * x)
    return [address - 4 * n for address, n in zip(seen, sizes, strict=True)]


def test_sizes_that_go_up_and_down_share_scratch_memory(kernel):
    assert len(set(addresses_seen(kernel, [5000, 4000, 5000, 3000] * 20))) == 1
    growing = addresses_seen(kernel, range(5000, 15000, 50))
    changes = sum(a != b for a, b in itertools.pairwise(growing))
    assert changes <= 6


def test_scratch_memory_of_one_large_call_goes(kernel):
    seen = addresses_seen(kernel, [1_000_000, *[5000] * 80])
    assert seen[-1] != seen[0]


def test_a_buffer_outside_of_the_scratch_memory_is_an_error(kernel):
    p = plan(
        [flat("input", R(0)), flat("arena", R(0), offset=64)],
        [("dim", 0, 0), ("const", 4), ("mul", 0, 1)],
        [KernelCall(kernel("twice"), (0, 1), sizes=(0,))],
        [],
        arena_bytes=R(2),
    )
    with pytest.raises(ValueError, match="outside"):
        p(torch.zeros(8))


def test_views_of_inputs_and_results(kernel):
    half = R(2)
    p = plan(
        [flat("input", R(0)), flat("output", R(0))],
        [("dim", 0, 0), ("const", 2), ("floordiv", 0, 1)],
        [KernelCall(kernel("twice"), (0, 1), sizes=(0,))],
        [
            view(0, (half,), (1,), half),
            view(1, (half,), (1,), half),
            view(1, (2, half), (half, 1)),
            view(1, (R(0),), (1,)),
            view(1, (R(0),), (1,)),
        ],
    )
    for n in (8, 8, 6, 2, 0):
        x = torch.randn(n)
        part, doubled_part, halves, whole, again = p(x)
        assert torch.equal(part, x[n // 2 :]) and part._base is x
        assert torch.equal(doubled_part, 2 * x[n // 2 :])
        assert torch.equal(halves, (2 * x).view(2, n // 2))
        assert again is not whole and again.data_ptr() == whole.data_ptr()


def test_views_of_inputs_that_stay_where_they_are(kernel):
    """What a plan keeps of an input between calls is another view where the sizes are others."""
    n, m = R(0), R(1)
    p = plan(
        [flat("input", 24), buffer("input", (n, m), (m, 1)), buffer("extern", (n, n), (n, 1))],
        [("dim", 1, 0), ("dim", 1, 1)],
        [
            extern(
                "aten.mm.default", never, (view(1, (n, m), (m, 1)), view(0, (m, n), (n, 1))), (2,)
            )
        ],
        [view(2, (n, n), (n, 1))],
    )
    weights = torch.randn(24)
    for shape in ((2, 12), (12, 2), (3, 8), (3, 8), (2, 12)):
        x = torch.randn(shape)
        torch.testing.assert_close(p(weights, x)[0], x @ weights.view(shape[1], shape[0]))


def test_a_call_within_a_call_has_its_own_sizes(kernel):
    inner = []

    def again(t):
        if len(inner) < 3:
            y = torch.randn(4 + 5 * len(inner))
            inner.append(y)
            assert torch.equal(p(y)[0], 4 * y)

    p = through_scratch(kernel, extern("t", again, (view(1, (R(0),), (1,)),), ()))
    for n in (6, 3):
        x = torch.randn(n)
        assert torch.equal(p(x)[0], 4 * x)
    assert len(inner) == 3


def test_calls_of_several_threads(kernel):
    """The kernels let other threads run."""
    p = plan(
        [flat("input", R(0)), flat("arena", R(0)), flat("output", R(0))],
        [("dim", 0, 0), ("const", 4), ("mul", 0, 1)],
        [
            KernelCall(kernel("twice"), (0, 1), bytes_moved=1 << 30, sizes=(0,)),
            KernelCall(kernel("twice"), (1, 2), bytes_moved=1 << 30, sizes=(0,)),
        ],
        [view(2, (R(0),), (1,))],
        arena_bytes=R(2),
    )
    wrong = []

    def work(seed):
        for i in range(200):
            n = 1000 * (1 + (seed + i) % 7)
            x = torch.full((n,), float(seed))
            (out,) = p(x)
            if out.shape != (n,) or not bool((out == 4 * seed).all()):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_calls_that_own_their_inputs(kernel):
    p = doubled(kernel)
    for n in (5, 7):
        x = torch.randn(n)
        expected, given = 2 * x, [x]
        del x
        assert torch.equal(p.consume(given)[0], expected) and given == []
    unused = plan([flat("input", R(0))], [("dim", 0, 0)], [], [(R(0),)])
    assert unused.consume([torch.zeros(6)]) == (6,)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ([("dim", 0, 1)], "dimension of an input"),
        ([("dim", 1, 0)], "dimension of an input"),
        ([("dim", 9, 0)], "buffer that it does not have"),
        ([("number", 0)], "from an int"),
        ([("pow", 0, 0)], "known op"),
        ([("add", 0, 0)], "not there yet"),
        ([("const", 1), ("add", 0)], "operands"),
        ([("after", 0, 1, 0)], "known after a library call"),
        ([], "size that it does not have"),
    ],
)
def test_sizes_are_checked(sizes, reason):
    with pytest.raises(ValueError, match=reason):
        plan([flat("input", 4), flat("output", R(0))], sizes, [], [])


def test_a_plan_with_sizes_has_something_to_raise():
    with pytest.raises(ValueError, match="exception"):
        _runtime.Plan(
            PlanSpec(1, (flat("input", R(0)),), (), (), 0, sizes=(SizeCall("dim", (0, 0)),))
        )


def test_sizes_that_come_often_are_told_and_can_have_a_plan_of_their_own(kernel):
    told = []
    p = doubled(kernel, keys=(0,), steady=lambda *args: told.append(args))
    own = plan([flat("input", 5)], [], [], [0])
    for n in (5, 6):
        for _ in range(100):
            p(torch.randn(n))
    assert told == [(p, (5,)), (p, (6,))]
    p.specialize((5,), own)
    x, y = torch.randn(5), torch.randn(6)
    for _ in range(2):
        assert p(x)[0] is x and p(x)[0] is x
        assert torch.equal(p(y)[0], 2 * y)
    with pytest.raises(ValueError, match="never had these sizes"):
        p.specialize((7,), own)
    with pytest.raises(TypeError):
        p.specialize((5,), None)
    with pytest.raises(TypeError, match="expected a tensor"):
        p("no tensor")
    with pytest.raises(ValueError, match="never asked"):
        own.specialize((5,), own)


@pytest.mark.parametrize("same", [True, False])
def test_a_plan_of_their_own_lets_go_of_what_is_owned(kernel, same):
    p = doubled(kernel, keys=(0,), steady=lambda *args: None)
    for n in (5, 6):
        for _ in range(100):
            p(torch.randn(n))
    p.specialize(
        (5,),
        plan(
            [flat("input", 5)],
            [],
            [extern("t", lambda t: None, (view(0, (5,), (1,)),), ())],
            [(7,)],
        ),
    )
    p(torch.randn(5 if same else 6))  # so that the sizes are those of the call before, or not
    for given in ([torch.randn(5)], [type("NoTensor", (), {})()]):
        there = weakref.ref(given[0])
        with contextlib.suppress(TypeError):
            assert p.consume(given) == (7,)
        assert given == [] and there() is None


def test_scratch_memory_without_bytes_is_made_once(kernel, monkeypatch):
    p = through_scratch(kernel)
    p(torch.randn(0))
    monkeypatch.delattr(torch, "uint8")  # whoever makes memory asks for it
    for _ in range(3):
        assert p(torch.randn(0))[0].shape == (0,)


def test_a_tensor_of_another_rank_is_refused(kernel):
    p = doubled(kernel)
    with pytest.raises(RuntimeError, match="1 dimensions"):
        p(torch.tensor(1.0))


def test_what_goes_wrong_beside_a_call_does_not_concern_it(kernel, monkeypatch):
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: lost.append(str(u.exc_value)))

    def steady(*args):
        raise ValueError("beside")

    p = doubled(kernel, keys=(0,), steady=steady)
    x = torch.randn(4)
    for _ in range(100):
        assert torch.equal(p(x)[0], 2 * x)
    assert lost == ["beside"]
