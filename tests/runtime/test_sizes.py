"""Plans whose sizes change from call to call."""

import contextlib
import itertools
import subprocess
import sys
import threading
import weakref

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import (
    BufferSpec,
    ExternCall,
    KernelCall,
    PlanSpec,
    ReadCall,
    SizeCall,
    SizeRef,
    ViewSpec,
)

aten = torch.ops.aten
CPU, F32, I64 = torch.device("cpu"), torch.float32, torch.int64
SOURCE = r"""
#include <stdint.h>
#define KERNEL(name) static void run_##name(void *const *b, const int64_t *s); \
    int name(void *const *b, const int64_t *s) { run_##name(b, s); return 0; } \
    static void run_##name(void *const *b, const int64_t *s)
KERNEL(twice) { const float *x = b[0]; float *o = b[1]; for (int64_t i = 0; i < s[0]; i++) o[i] = 2 * x[i]; }
KERNEL(rows) {  // sizes: rows, columns, stride of a row
    const float *x = b[0]; float *o = b[1];
    for (int64_t i = 0; i < s[0]; i++)
        for (int64_t k = 0; k < s[1]; k++) o[i * s[1] + k] = 2 * x[i * s[2] + k];
}
KERNEL(give) { int64_t *o = b[0]; for (int64_t i = 0; i < (int64_t)b[1]; i++) o[i] = s[i]; }
"""


class Refused(BaseException):
    """What a call raises that does not begin."""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Address of a kernel by name."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text(SOURCE)
    library = folder / "k.so"
    subprocess.run(
        ["gcc", "-w", "-O2", "-shared", "-fPIC", "-o", library, folder / "k.c"], check=True
    )
    handle = _runtime.load_library(str(library))
    return lambda name: _runtime.symbol(handle, name)


R = SizeRef


def buffer(kind, shape, strides, dtype=F32, offset=0):
    return BufferSpec(kind, shape, strides, dtype, CPU, offset)


def plan(buffers, sizes, steps, outputs, arena_bytes=0, **more):
    """`sizes` are SizeCalls as (op, *operands)."""
    inputs = sum(b.kind == "input" for b in buffers) + more.pop("number_inputs", 0)
    calls = tuple(SizeCall(op, tuple(operands)) for op, *operands in sizes)
    return _runtime.Plan(
        PlanSpec(
            inputs, tuple(buffers), tuple(steps), tuple(outputs), arena_bytes, refused=Refused, sizes=calls, **more
        )
    )  # fmt: skip


def flat(kind, size, **more):
    return buffer(kind, (size,), (1,), **more)


def view(number, shape, strides, offset=0, dtype=F32):
    return ViewSpec(number, shape, strides, offset, dtype)


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


def number(dtype=I64):
    return BufferSpec("number", (), (), dtype, CPU)


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


# --- library calls


def extern(target, function, args, results, kwargs=None, out_form=False):
    return ExternCall(target, function, args, kwargs or {}, results, out_form)


def test_sizes_in_the_arguments_of_library_calls():
    """(n, m) tensor -> zeros, arange, expand, view, slice of its sizes."""
    n, m, both = R(0), R(1), R(2)
    x = view(0, (n, m), (m, 1))
    options = {"dtype": F32, "device": CPU}
    calls = [
        extern("t", aten.zeros.default, ([n, 2, m],), (1,), options),
        extern("t", aten.arange.default, (both,), (2,), options),
        extern("t", aten.view.default, (x, [both]), (3,)),
        extern("t", aten.slice.Tensor, (x, 1, 0, n), (4,)),
        extern("t", aten.expand.default, (x, (3, n, m)), (5,)),
        extern("t", lambda nested: nested[0][1] * torch.ones(2), ([(1, m)],), (6,)),
    ]
    p = plan(
        [
            buffer("input", (n, m), (m, 1)),
            buffer("extern", (n, 2, m), (R(3), m, 1)),
            flat("extern", both),
            flat("extern", both),
            buffer("extern", (n, R(4)), (m, 1)),
            buffer("extern", (3, n, m), (0, m, 1)),
            flat("extern", 2),
        ],
        [("dim", 0, 0), ("dim", 0, 1), ("mul", 0, 1), ("add", 1, 1), ("min", 0, 1)],
        calls,
        [
            view(1, (n, 2, m), (R(3), m, 1)),
            view(2, (both,), (1,)),
            view(3, (both,), (1,)),
            view(4, (n, R(4)), (m, 1)),
            view(5, (3, n, m), (0, m, 1)),
            view(6, (2,), (1,)),
        ],
    )
    for shape in ((2, 5), (2, 5), (4, 3), (6, 6), (2, 5)):
        x = torch.randn(shape)
        zeros, counted, viewed, sliced, expanded, number = p(x)
        assert torch.equal(zeros, torch.zeros(shape[0], 2, shape[1]))
        assert torch.equal(counted, torch.arange(x.numel(), dtype=F32))
        assert torch.equal(viewed, x.view(-1)) and viewed.data_ptr() == x.data_ptr()
        assert torch.equal(sliced, x[:, : shape[0]]) and sliced.stride() == x.stride()
        assert torch.equal(expanded, x.expand(3, *shape)) and expanded.stride() == (0, shape[1], 1)
        assert number.tolist() == [shape[1]] * 2


def never(*args, **kwargs):
    raise AssertionError("called through Python")


def test_sizes_through_the_c_interface():
    """Products in both forms, an integer and integers among the arguments."""
    n, m = R(0), R(1)
    x, square = view(0, (n, m), (m, 1)), ((n, n), (n, 1))
    p = plan(
        [
            buffer("input", (n, m), (m, 1)),
            buffer("output", *square),
            buffer("extern", *square),
            buffer("extern", (n, R(2)), (R(2), 1)),
            buffer("extern", (n, R(2)), (R(2), 1), dtype=I64),
        ],
        [("dim", 0, 0), ("dim", 0, 1), ("min", 0, 1)],
        [
            extern("aten.mm.default", never, (x, view(0, (m, n), (1, m))), (1,), out_form=True),
            extern("aten.mm.default", never, (x, view(0, (m, n), (1, m))), (2,)),
            extern("aten.topk.default", never, (x, R(2), 1, True, True), (3, 4)),
        ],
        [view(1, *square), view(2, *square), view(3, (n, R(2)), (R(2), 1))],
    )
    for shape in ((2, 5), (2, 5), (4, 3), (1, 1), (3, 70), (0, 4)):
        x = torch.randn(shape)
        first, second, best = p(x)
        torch.testing.assert_close(first, x @ x.t())
        torch.testing.assert_close(second, x @ x.t())
        assert torch.equal(best, x.topk(min(shape), 1).values)


def test_integers_through_the_c_interface():
    n = R(0)
    pooled = ((2, 1, R(1), 2), (R(2), R(2), 2, 1))
    p = plan(
        [buffer("input", (2, 1, n, 8), (R(3), R(3), 8, 1)), buffer("extern", *pooled)],
        [("dim", 0, 2), ("const", 3), ("const", 6), ("const", 8), ("mul", 0, 3)],
        [
            extern(
                "aten._adaptive_avg_pool2d.default",
                never,
                (view(0, (2, 1, n, 8), (R(4), R(4), 8, 1)), [R(1), 2]),
                (1,),
            )
        ],
        [view(1, *pooled)],
    )
    for rows in (6, 9, 6):
        x = torch.randn(2, 1, rows, 8)
        torch.testing.assert_close(p(x)[0], aten._adaptive_avg_pool2d(x, [3, 2]))


# --- memory


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


# --- more than one call at a time


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


# --- what a plan checks when it is made


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


# --- sizes that a library call's result has


def positions(kernel):
    """x -> indices of what is not 0, twice as float through scratch memory of its own, how many, and a plain copy."""
    n, found, both = R(0), R(1), R(3)
    return plan(
        [
            flat("input", n),
            buffer("extern", (found, 1), (1, R(5)), dtype=I64),
            flat("extern", found),
            flat("transient", found),
            flat("output", found),
            flat("output", both),
            flat("output", n),
        ],
        [("dim", 0, 0), ("after", 0, 1, 0), ("const", 2), ("mul", 1, 2), ("const", 1), ("max", 1, 4), ("add", 0, 1)],
        [
            extern("t", aten.nonzero.default, (view(0, (n,), (1,)),), (1,)),
            extern("t", aten._to_copy.default, (view(1, (found,), (1,), dtype=I64),), (2,), {"dtype": F32}),
            KernelCall(kernel("twice"), (2, 3), sizes=(1,), bytes_moved=both),
            KernelCall(kernel("twice"), (3, 4), sizes=(1,)),
            extern("t", aten.fill_.Scalar, (view(5, (both,), (1,)), both), ()),
            KernelCall(kernel("twice"), (0, 6), sizes=(0,)),
        ],
        [view(4, (found,), (1,)), (found,), (R(6),), view(5, (both,), (1,)), view(6, (n,), (1,)), view(4, (found, 1), (1, 1))],
    )  # fmt: skip


def test_sizes_after_a_library_call(kernel):
    p = positions(kernel)
    for n, zeros in ((6, 2), (6, 3), (9, 3), (9, 0), (4, 4), (0, 0), (9, 0)):
        x = torch.randn(n)
        x[:zeros] = 0
        indices, found, total, filled, twice, column = p(x)
        assert found == n - zeros and total == 2 * n - zeros
        assert indices.tolist() == [4.0 * i for i in range(zeros, n)]
        assert torch.equal(filled, torch.full((2 * found,), 2.0 * found))
        assert torch.equal(twice, 2 * x)
        assert column.shape == (found, 1) and column.data_ptr() == indices.data_ptr()


def test_sizes_of_several_results():
    """unique gives results of two sizes that the call itself decides."""
    n, kinds, pairs = R(0), R(1), R(3)
    p = plan(
        [
            flat("input", n),
            flat("extern", kinds),
            flat("extern", n, dtype=I64),
            flat("extern", kinds, dtype=I64),
            buffer("extern", (kinds, kinds), (kinds, 1)),
        ],
        [("dim", 0, 0), ("after", 0, 1, 0), ("after", 0, 3, 0), ("mul", 1, 2)],
        [
            extern("t", aten._unique2.default, (view(0, (n,), (1,)), True, True, True), (1, 2, 3)),
            extern("t", aten.zeros.default, ([kinds, kinds],), (4,), {"dtype": F32}),
        ],
        [view(1, (kinds,), (1,)), view(2, (n,), (1,), dtype=I64), (pairs,), view(4, (kinds, kinds), (kinds, 1))],
    )  # fmt: skip
    for n_now, kinds_now in ((10, 3), (10, 5), (4, 1)):
        x = torch.arange(n_now).remainder(kinds_now).float()
        values, where, pairs_now, square = p(x)
        assert torch.equal(values[where], x) and pairs_now == kinds_now**2
        assert square.shape == (kinds_now, kinds_now)


def test_impossible_sizes_after_a_library_call():
    p = plan(
        [flat("input", R(0)), buffer("extern", (R(1), 1), (1, 1), dtype=I64), flat("output", R(3))],
        [("dim", 0, 0), ("after", 0, 1, 0), ("const", 2), ("sub", 1, 2)],
        [
            extern("t", aten.nonzero.default, (view(0, (R(0),), (1,)),), (1,)),
            extern("t", aten.fill_.Scalar, (view(2, (R(3),), (1,)), 5), ()),
        ],
        [view(2, (R(3),), (1,))],
    )
    assert p(torch.ones(5))[0].tolist() == [5.0] * 3
    for _ in range(2):
        with pytest.raises(RuntimeError, match="impossible sizes"):
            p(torch.ones(1))
    assert p(torch.ones(5))[0].tolist() == [5.0] * 3


@pytest.mark.parametrize(
    ("steps", "buffers"),
    [
        (["use", "find"], ["output"]),
        (["find"], ["arena"]),
        (["find"], ["output"]),
        (["find", "use"], ["arena"]),
    ],
)
def test_what_depends_on_a_result_comes_behind_it(kernel, steps, buffers):
    found = extern("t", aten.nonzero.default, (view(0, (4,), (1,)),), (1,))
    use = KernelCall(kernel("give"), (2,), sizes=(0,))
    with pytest.raises(ValueError, match="before"):
        plan(
            [
                flat("input", 4),
                buffer("extern", (R(0), 1), (1, 1), dtype=I64),
                *[flat(kind, R(0)) for kind in buffers],
            ],
            [("after", steps.index("find"), 1, 0)],
            [{"use": use, "find": found}[step] for step in steps],
            [],
            arena_bytes=64,
        )


def test_sizes_that_a_tensor_holds(kernel):
    """A kernel writes them; what has these sizes is made behind the step that reads them."""
    rows, columns = R(1), R(2)
    p = plan(
        [
            flat("input", 2, dtype=I64),
            buffer("arena", (2,), (1,), dtype=I64),
            buffer("extern", (rows, columns), (columns, 1)),
            flat("output", rows),
        ],
        [("const", 2), ("item", 1, 1, 0), ("item", 1, 1, 1), ("dim", 0, 0), ("mul", 1, 2)],
        [
            extern("t", aten.mul.out, (view(0, (2,), (1,), dtype=I64), 2), (1,), out_form=True),
            ReadCall(1),
            extern("t", aten.ones.default, ([rows, columns],), (2,), {"dtype": F32}),
            extern("t", aten.fill_.Scalar, (view(3, (rows,), (1,)), 5), ()),
        ],
        [view(2, (rows, columns), (columns, 1)), (R(4),), view(3, (rows,), (1,))],
        arena_bytes=64,
    )  # fmt: skip
    for given in ([1, 2], [3, 1], [0, 4], [3, 1], [2, 5]):
        made, count, filled = p(torch.tensor(given))
        assert made.shape == (2 * given[0], 2 * given[1]) and count == made.numel()
        assert filled.tolist() == [5.0] * (2 * given[0])
    with pytest.raises(RuntimeError, match="impossible sizes"):
        p(torch.tensor([1, -2]))
    assert p(torch.tensor([1, 2]))[1] == 8


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([("item", 0, 0, 2)], "read from"),
        ([("item", 1, 0, 0)], "after the step that reads it"),
        ([("item", 0, 1, 0)], "after the step that reads it"),
        ([], "what is read"),
    ],
)
def test_reads_that_make_no_sense(sizes, message):
    with pytest.raises(ValueError, match=message):
        plan([flat("input", 2, dtype=I64), flat("input", 2, dtype=I64)], sizes, [ReadCall(0)], [])


def test_sizes_that_come_often_are_told_and_can_have_a_plan_of_their_own(kernel):
    told = []
    p = doubled(kernel, keys=(0,), steady=lambda *args: told.append(args))
    own = plan([flat("input", 5)], [], [], [0])
    for n in (5, 6):
        for _ in range(100):
            p(torch.randn(n))
    assert told == [(p, (5,)), (p, (6,))]
    p.settle((5,), own)
    x, y = torch.randn(5), torch.randn(6)
    for _ in range(2):
        assert p(x)[0] is x and p(x)[0] is x
        assert torch.equal(p(y)[0], 2 * y)
    with pytest.raises(ValueError, match="never had these sizes"):
        p.settle((7,), own)
    with pytest.raises(TypeError):
        p.settle((5,), None)
    with pytest.raises(TypeError, match="expected a tensor"):
        p("no tensor")
    with pytest.raises(ValueError, match="never asked"):
        own.settle((5,), own)


@pytest.mark.parametrize("same", [True, False])
def test_a_plan_of_their_own_lets_go_of_what_is_owned(kernel, same):
    p = doubled(kernel, keys=(0,), steady=lambda *args: None)
    for n in (5, 6):
        for _ in range(100):
            p(torch.randn(n))
    p.settle(
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
