"""Plans with sizes that a call tells: of results of library calls, or held by a tensor."""

import pytest
import torch

from frameloom.runtime.spec import (
    KernelCall,
    ReadCall,
)
from tests.runtime.sized_plans import CPU, F32, I64, R, buffer, extern, flat, never, plan, view

aten = torch.ops.aten


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
