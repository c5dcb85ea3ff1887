"""Library calls of a native plan: how arguments and results travel, and what is raised."""

import gc
import weakref

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import (
    ExternCall,
    InputSpec,
    KernelCall,
    ViewSpec,
)
from tests.runtime.plans import (
    S,
    aten,
    buffer,
    extern,
    pair,
    plan,
    view,
)


def test_matrix_products_through_the_c_interface():
    assert "aten.addmm.default" in _runtime.shim_names()
    x, w, b = torch.randn(4, 8), torch.randn(16, 8), torch.randn(16)

    def never(*args, **kwargs):
        raise AssertionError("called through Python")

    wt = view(1, (8, 16), (1, 8))
    p = plan(
        (x, w, b),
        [buffer("output", (4, 16)), buffer("arena", (4, 16)), buffer("extern", (4, 16))],
        [
            extern(
                "aten.addmm.default",
                never,
                (view(2, (16,)), view(0, S), wt),
                (3,),
                {"alpha": 2, "beta": 0.5},
                True,
            ),
            extern("aten.mm.default", never, (view(0, S), wt), (4,), out_form=True),
            extern("aten.addmm.default", never, (view(2, (16,)), view(0, S), wt), (5,)),
        ],
        [view(3, (4, 16)), view(5, (4, 16))],
        arena_bytes=256,
    )
    first, last = p(x, w, b)
    torch.testing.assert_close(first, torch.addmm(b, x, w.t(), alpha=2, beta=0.5))
    torch.testing.assert_close(last, torch.addmm(b, x, w.t()))


THREE = 3


def shim_cases():
    x, w, b = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    mask = torch.zeros(1, 1, 5, 5)
    a, c = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    index = torch.tensor([1, 0, 1, 1])
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    conv = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return [
        (aten.convolution.default, (x, w, b, *conv), {}),
        (aten.convolution.default, (x, w, None, *conv), {}),
        (flash, (q, k, v), {}),
        (flash, (q, k, v, 0.0, True), {"scale": 0.3}),
        (flash, (q, k, v), {"attn_mask": mask}),
        (aten.cat.default, ([a, a, a], 1), {}),
        (aten.cat.default, ([a, a],), {}),
        (aten.bmm.default, (a, c), {}),
        (aten.baddbmm.default, (torch.randn(2, 3, 5), a, c), {"beta": 2}),
        (aten.max_pool2d_with_indices.default, (x, [2, 2], [2, 2], [0, 0], [1, 1]), {}),
        (aten._adaptive_avg_pool2d.default, (x, [2, 2]), {}),
        (aten.topk.default, (a, 2), {"sorted": True}),
        (aten.sort.default, (a, -1, True), {}),
        (aten.sort.stable, (a,), {"stable": True, "dim": 1}),
        (aten.sort.stable, (a,), {"stable": None, "descending": True}),
        (aten.cumsum.default, (a, 1), {}),
        (aten.cumsum.default, (a, 1), {"dtype": torch.float64}),
        (aten.cumprod.default, (a, -1), {"dtype": None}),
        (aten.index.Tensor, (a, [None, index, None]), {}),
        (aten.index.Tensor, (a, [index[:2], None, index[:2]]), {}),
        (aten.index_put.default, (a, [None, index], torch.randn(4, 4)), {}),
        (aten.index_put.default, (a, [None, index], torch.randn(4, 4), True), {}),
        (aten.avg_pool2d.default, (x, [2, 2], [2, 2], [1, 1], False, False), {}),
        (aten.avg_pool2d.default, (x, [2, 2], [2, 2], [0, 0], False, True, THREE), {}),
        (aten.native_dropout.default, (a, 0.5, False), {}),
        (aten.mul.Tensor, (a, torch.tensor(2.0)), {}),
    ]


def run_case(function, args, kwargs):
    """One library call as a plan, and what eager gives."""
    inputs = []

    def lift(value):
        if isinstance(value, torch.Tensor):
            inputs.append(value)
            return view(len(inputs) - 1, tuple(value.shape), value.stride(), 0, value.dtype)
        return [lift(v) for v in value] if isinstance(value, list) else value

    args, kwargs = tuple(lift(a) for a in args), {k: lift(v) for k, v in kwargs.items()}
    eager = function(
        *[e for e in _unlift(args, inputs)],
        **dict(zip(kwargs, _unlift(kwargs.values(), inputs), strict=True)),
    )
    eager = eager if isinstance(eager, tuple) else (eager,)
    target = str(function)
    results = [buffer("extern", tuple(e.shape), e.stride(), e.dtype) for e in eager]
    numbers = tuple(range(len(inputs), len(inputs) + len(eager)))
    outputs = [
        view(n, tuple(e.shape), e.stride(), 0, e.dtype) for n, e in zip(numbers, eager, strict=True)
    ]
    return (
        plan(inputs, results, [extern(target, function, args, numbers, kwargs)], outputs),
        inputs,
        eager,
    )


def _unlift(values, inputs):
    return [
        inputs[v.buffer]
        if isinstance(v, ViewSpec)
        else _unlift(v, inputs)
        if isinstance(v, list) and any(isinstance(e, ViewSpec) for e in v)
        else v
        for v in values
    ]


@pytest.mark.parametrize("function, args, kwargs", shim_cases())
def test_library_calls_agree_with_eager(function, args, kwargs):
    p, inputs, eager = run_case(function, args, kwargs)
    for out, expected in zip(p(*inputs), eager, strict=True):
        torch.testing.assert_close(out, expected)
        assert out.stride() == expected.stride()


@pytest.mark.parametrize("function, args, kwargs", shim_cases())
def test_library_calls_of_the_table_need_no_python(function, args, kwargs, monkeypatch):
    if kwargs.get("dtype") or args[-1] is THREE:
        pytest.skip("an argument that the table does not know")

    def never(*args, **kwargs):
        raise AssertionError("Python was called")

    def without_python(target, given, arguments, results, named):
        return ExternCall(target, never, arguments, named, results)

    monkeypatch.setitem(globals(), "extern", without_python)
    p, inputs, _ = run_case(function, args, kwargs)
    p(*inputs)


def test_python_calls_receive_objects_lists_and_out():
    x, y = pair()
    seen = []

    def function(values, number, *, out=None, other=None):
        seen.append((values, number, other))
        return torch.add(*values, out=out)

    p = plan(
        (x, y),
        [buffer("output", S)],
        [
            extern(
                "test.f",
                function,
                ([view(0, S), view(1, S)], 7),
                (2,),
                {"other": InputSpec(1)},
                True,
            )
        ],
        [view(2, S)],
    )
    assert torch.equal(p(x, y)[0], x + y)
    values, number, other = seen[0]
    assert values[0] is x and values[1] is y and number == 7 and other is y


def test_several_results_in_out_form():
    x = torch.randn(4, 8)
    p = plan(
        (x,),
        [
            buffer("output", (4, 2)),
            buffer("arena", (4, 2), dtype=torch.int64),
            buffer("extern", (4, 2), dtype=torch.int64),
        ],
        [
            extern("aten.topk.default", aten.topk.values, (view(0, S), 2), (1, 2), out_form=True),
            extern(
                "aten.clone.default",
                aten.clone.default,
                (view(2, (4, 2), dtype=torch.int64),),
                (3,),
            ),
        ],
        [view(1, (4, 2)), view(3, (4, 2), dtype=torch.int64)],
        arena_bytes=64,
    )
    values, indices = p(x)
    expected = x.topk(2)
    assert torch.equal(values, expected.values) and torch.equal(indices, expected.indices)


def test_result_with_other_strides_is_copied(kernel):
    x = torch.randn(8, 4)
    p = plan(
        (x,),
        [buffer("extern", S), buffer("output", S)],
        [
            extern("test.t", lambda t: t.t(), (view(0, (8, 4)),), (1,)),
            KernelCall(kernel("twice32"), (1, 2)),
        ],
        [view(1, S), view(2, S)],
    )
    transposed, doubled = p(x)
    assert torch.equal(transposed, x.t()) and transposed.stride() == (8, 1)
    assert torch.equal(doubled, 2 * x.t())


def test_result_of_another_shape_is_an_error():
    x = torch.randn(4, 8)
    for wrong in (lambda t: t[:3], lambda t: t.double()):
        p = plan(
            (x,),
            [buffer("extern", S)],
            [extern("test.w", wrong, (view(0, S),), (1,))],
            [view(1, S)],
        )
        with pytest.raises(RuntimeError, match="planned was"):
            p(x)


def test_result_that_lies_in_scratch_memory_is_copied(kernel):
    x, y = pair()
    p = plan(
        (x, y),
        [buffer("arena", S), buffer("extern", S)],
        [
            KernelCall(kernel("add32"), (0, 1, 2)),
            extern("test.same", lambda t: t, (view(2, S),), (3,)),
        ],
        [view(3, S)],
        arena_bytes=128,
    )
    first = p(x, y)[0]
    p(torch.zeros(S), torch.zeros(S))
    assert torch.equal(first, x + y)


def test_unused_results_and_calls_for_effect():
    x = torch.randn(4, 8)
    version = x._version
    p = plan(
        (x,),
        [buffer("extern", (4, 2))],
        [
            extern("aten.topk.default", aten.topk.default, (view(0, S), 2), (1, None)),
            extern(
                "frameloom.version", torch.autograd.graph.increment_version, (InputSpec(0),), ()
            ),
        ],
        [view(1, (4, 2))],
    )
    assert torch.equal(p(x)[0], x.topk(2).values) and x._version == version + 1


def test_library_results_are_freed_after_their_last_use():
    x = torch.randn(4, 8)
    alive = []

    def make(t):
        result = t + 1
        alive.append(weakref.ref(result))
        return result

    def look(t):
        gc.collect()
        return t * sum(ref() is not None for ref in alive)

    p = plan(
        (x,),
        [buffer("extern", S), buffer("extern", (8, 4)), buffer("extern", S)],
        [
            extern("test.make", make, (view(0, S),), (1,)),
            extern("test.make", make, (view(1, (8, 4), (1, 8)),), (2,)),
            extern("test.look", look, (view(0, S),), (3,)),
        ],
        [view(3, S)],
    )
    assert torch.equal(p(x)[0], torch.zeros(S)) and len(alive) == 2


def test_transient_tensors_live_from_their_first_use_to_their_last(kernel):
    x, y = pair()
    alive = []

    def look(t, seen):
        alive.append(weakref.ref(t))
        return torch.full(S, float(sum(ref() is not None for ref in alive)))

    p = plan(
        (x, y),
        [buffer("transient", S), buffer("extern", S), buffer("transient", S), buffer("extern", S),
         buffer("output", S)],
        [
            KernelCall(kernel("add32"), (0, 1, 2)),
            extern("test.look", look, (view(2, S), 0), (3,)),
            KernelCall(kernel("twice32"), (2, 4)),
            extern("test.look", look, (view(4, S), 0), (5,)),
            KernelCall(kernel("add32"), (4, 5, 6)),
        ],
        [view(6, S), view(3, S), view(5, S)],
    )  # fmt: skip
    for _ in range(2):
        alive.clear()
        out, first, second = p(x, y)
        assert first[0, 0] == second[0, 0] == 1
        assert torch.equal(out, 2 * (x + y) + 1)


def test_a_transient_tensor_cannot_be_returned(kernel):
    x, y = pair()
    with pytest.raises(ValueError, match="cannot be returned"):
        plan(
            (x, y), [buffer("transient", S)], [KernelCall(kernel("add32"), (0, 1, 2))], [view(2, S)]
        )


def test_errors_are_the_librarys_own():
    x, y = pair()
    p = plan(
        (x, y),
        [buffer("output", S)],
        [extern("aten.mm.default", aten.mm.out, (view(0, S), view(1, S)), (2,), out_form=True)],
        [view(2, S)],
    )
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        p(x, y)

    def fails(t):
        raise KeyError("mine")

    p = plan(
        (x,),
        [buffer("extern", S)],
        [extern("test.fails", fails, (view(0, S),), (1,))],
        [view(1, S)],
    )
    with pytest.raises(KeyError, match="mine"):
        p(x)
