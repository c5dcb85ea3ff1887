"""The native plan: kernels, library calls, memory, results, and what happens when something fails."""

import gc
import subprocess
import threading
import weakref

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import (
    BufferSpec,
    CheckCall,
    ExternCall,
    InputSpec,
    KernelCall,
    PlanSpec,
    ViewSpec,
)

aten = torch.ops.aten
CPU = torch.device("cpu")
SOURCE = r"""
#include <stdint.h>
#define KERNEL(name) static void run_##name(void *const *b, const int64_t *sizes); \
    int name(void *const *b, const int64_t *sizes) { run_##name(b, sizes); return 0; } \
    static void run_##name(void *const *b, const int64_t *sizes)
KERNEL(add32) { const float *x = b[0], *y = b[1]; float *o = b[2]; for (int i = 0; i < 32; i++) o[i] = x[i] + y[i]; }
KERNEL(twice32) { const float *x = b[0]; float *o = b[1]; for (int i = 0; i < 32; i++) o[i] = 2 * x[i]; }
KERNEL(mark) { *(char *)b[0] = *(const float *)b[1] < 0; }
KERNEL(nothing) { }
int starved(void *const *b, const int64_t *sizes) { return 1; }
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Address of a kernel by name, from one small library written in C."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text(SOURCE)
    library = folder / "k.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, folder / "k.c"], check=True)
    handle = _runtime.load_library(str(library))
    return lambda name: _runtime.symbol(handle, name)


def contiguous(shape):
    return torch.empty(shape, device="meta").stride()


def buffer(kind, shape, strides=None, dtype=torch.float32, offset=0, constant=None):
    return BufferSpec(kind, shape, strides or contiguous(shape), dtype, CPU, offset, constant)


def view(number, shape, strides=None, offset=0, dtype=torch.float32):
    return ViewSpec(number, shape, strides or contiguous(shape), offset, dtype)


def plan(inputs, buffers, steps, outputs, **more):
    """A plan whose inputs look like these tensors."""
    first = tuple(buffer("input", tuple(t.shape), t.stride(), t.dtype) for t in inputs)
    more = {"arena_bytes": 0} | more
    return _runtime.Plan(
        PlanSpec(len(inputs), first + tuple(buffers), tuple(steps), tuple(outputs), **more)
    )


def pair():
    return torch.randn(4, 8), torch.randn(4, 8)


S = (4, 8)


def test_one_kernel(kernel):
    x, y = pair()
    p = plan((x, y), [buffer("output", S)], [KernelCall(kernel("add32"), (0, 1, 2))], [view(2, S)])
    (out,) = p(x, y)
    assert torch.equal(out, x + y) and type(out) is torch.Tensor and not out.requires_grad
    (other,) = p(x, y)
    assert other.data_ptr() != out.data_ptr()
    assert (p.calls, p.arena_bytes) == (2, 0)


def test_large_kernels_let_other_threads_run(kernel):
    x, y = pair()
    step = KernelCall(kernel("add32"), (0, 1, 2), bytes_moved=1 << 30)
    p = plan((x, y), [buffer("output", S)], [step], [view(2, S)])
    results = []
    threads = [
        threading.Thread(target=lambda: results.extend(p(x, y)[0] for _ in range(100)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 400 and all(torch.equal(r, x + y) for r in results)


def test_arena_and_chain(kernel):
    x, y = pair()
    p = plan(
        (x, y),
        [buffer("arena", S, offset=64), buffer("output", S)],
        [KernelCall(kernel("add32"), (0, 1, 2)), KernelCall(kernel("twice32"), (2, 3))],
        [view(3, S)],
        arena_bytes=64 + 128,
    )
    for _ in range(3):
        assert torch.equal(p(x, y)[0], 2 * (x + y))


def test_large_arena_is_not_kept(kernel):
    x, y = pair()
    p = plan(
        (x, y),
        [buffer("arena", S, offset=(65 << 20) - 128), buffer("output", S)],
        [KernelCall(kernel("add32"), (0, 1, 2)), KernelCall(kernel("twice32"), (2, 3))],
        [view(3, S)],
        arena_bytes=65 << 20,
    )
    assert torch.equal(p(x, y)[0], 2 * (x + y))


def test_reentrant_call_has_its_own_arena(kernel):
    x, y = pair()
    inner = []

    def call_again(t):
        if not inner:
            inner.append(None)
            inner[0] = p(torch.zeros(S), torch.zeros(S))[0]
        return t * 1

    p = plan(
        (x, y),
        [buffer("arena", S), buffer("extern", S), buffer("output", S)],
        [
            KernelCall(kernel("add32"), (0, 1, 2)),
            ExternCall("test.again", call_again, (view(0, S),), {}, (3,)),
            KernelCall(kernel("twice32"), (2, 4)),
        ],
        [view(4, S)],
        arena_bytes=128,
    )
    assert torch.equal(p(x, y)[0], 2 * (x + y))
    assert torch.equal(inner[0], torch.zeros(S))


# --- outputs


def test_all_kinds_of_outputs(kernel):
    x, y = pair()
    constant = torch.arange(3)
    p = plan(
        (x, y),
        [buffer("output", S)],
        [KernelCall(kernel("add32"), (0, 1, 2))],
        [
            view(2, S),
            view(2, S),
            view(2, (8, 4), (1, 8)),
            view(2, (3, 8), offset=8),
            0,
            view(1, S),
            view(1, (8, 4), (1, 8)),
            (constant,),
            (None,),
        ],
    )
    out, same, transposed, rows, x2, y2, yt, c, none = p(x, y)
    expected = x + y
    assert same is not out and same.data_ptr() == out.data_ptr() and torch.equal(out, expected)
    assert torch.equal(transposed, expected.t()) and torch.equal(rows, expected[1:])
    assert transposed.data_ptr() == out.data_ptr()
    assert x2 is x and y2 is not y and y2._base is y and c is constant and none is None
    assert torch.equal(yt, y.t()) and yt._base is y
    out.zero_()
    assert rows.abs().max() == 0


def test_view_of_an_input_that_starts_inside_its_storage():
    base = torch.randn(10, 8)
    x = base[3:7]
    p = plan((x,), [], [], [view(0, (2, 8), offset=16)])
    (out,) = p(x)
    assert torch.equal(out, x[2:]) and out.data_ptr() == x[2:].data_ptr()


def test_view_of_another_dtype():
    x = torch.randn(4, 8)
    p = plan(
        (x,),
        [buffer("extern", (4, 8), dtype=torch.int32)],
        [ExternCall("test.clone", torch.clone, (view(0, (4, 8), dtype=torch.int32),), {}, (1,))],
        [view(1, (4, 8), dtype=torch.int32), view(0, (4, 8), dtype=torch.int32)],
    )
    cloned, seen = p(x)
    assert torch.equal(cloned, x.view(torch.int32)) and torch.equal(seen, cloned)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (1,)])
def test_scalar_and_empty_tensors(kernel, shape):
    x = torch.ones(shape)
    p = plan(
        (x,),
        [buffer("output", shape), buffer("extern", shape)],
        [
            KernelCall(kernel("nothing"), (0, 1)),
            ExternCall("aten.neg.default", aten.neg.default, (view(0, shape),), {}, (2,)),
        ],
        [view(1, shape), view(2, shape)],
    )
    made, negated = p(x)
    assert made.shape == shape and torch.equal(negated, -x)


def test_opaque_inputs_pass_through():
    spec = PlanSpec(
        2,
        (BufferSpec("input", (), (), None, None), BufferSpec("input", (), (), None, None)),
        (),
        (1, 0),
        0,
    )
    thing = object()
    assert _runtime.Plan(spec)(None, thing) == (thing, None)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
)
def test_dtypes_of_outputs(kernel, dtype):
    p = plan(
        (), [buffer("output", (2, 3), (1, 2), dtype)], [], [view(0, (2, 3), (1, 2), dtype=dtype)]
    )
    (out,) = p()
    assert (out.dtype, out.shape, out.stride(), out.device) == (dtype, (2, 3), (1, 2), CPU)


# --- library calls


def extern(target, function, args, results, kwargs=None, out_form=False):
    return ExternCall(target, function, args, kwargs or {}, results, out_form)


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


def test_check_raises_what_it_says(kernel):
    x = torch.ones(4, 8)
    p = plan(
        (x,),
        [buffer("arena", (1,), dtype=torch.uint8)],
        [KernelCall(kernel("mark"), (1, 0)), CheckCall(1, IndexError, "index out of range")],
        [0],
        arena_bytes=64,
    )
    assert p(x)[0] is x
    with pytest.raises(IndexError, match="index out of range"):
        p(-x)
    assert p(x)[0] is x


def test_a_kernel_without_memory_is_an_exception(kernel):
    with pytest.raises(MemoryError):
        plan((torch.ones(4, 8),), [], [KernelCall(kernel("starved"), (0,))], [0])(torch.ones(4, 8))


def test_constants(kernel):
    x, constant = torch.randn(4, 8), torch.randn(4, 8)
    p = plan(
        (x,),
        [buffer("constant", S, constant=constant), buffer("output", S), buffer("output", (8, 8))],
        [
            KernelCall(kernel("add32"), (0, 1, 2)),
            extern(
                "aten.mm.default",
                aten.mm.out,
                (view(1, (8, 4), (1, 8)), view(0, S)),
                (3,),
                out_form=True,
            ),
        ],
        [view(2, S), view(3, (8, 8))],
    )
    for _ in range(2):
        added, product = p(x)
        assert torch.equal(added, x + constant)
        torch.testing.assert_close(product, constant.t() @ x)


def test_views_for_c_functions_follow_their_tensors_and_keep_nothing():
    def transposed_product():
        x = torch.empty(4, 8)
        return plan(
            (x, torch.empty(16, 8)),
            [buffer("output", (4, 16))],
            [
                extern(
                    "aten.mm.default",
                    aten.mm.out,
                    (view(0, S), view(1, (8, 16), (1, 8))),
                    (2,),
                    out_form=True,
                )
            ],
            [view(2, (4, 16))],
        )

    p, x = transposed_product(), torch.randn(4, 8)
    weights = [torch.nn.Parameter(torch.randn(16, 8), requires_grad=False) for _ in range(2)]
    for w in weights * 2:
        torch.testing.assert_close(p(x, w)[0], x @ w.t())
    weights[0].data = torch.randn(16, 8)
    torch.testing.assert_close(p(x, weights[0])[0], x @ weights[0].t())
    weights[0].zero_()
    assert p(x, weights[0])[0].abs().max() == 0
    array = torch.ones(16, 8).numpy()
    memory = weakref.ref(array)
    p(x, torch.from_numpy(array))
    del array
    gc.collect()
    assert memory() is None


def test_inference_mode_makes_inference_tensors(kernel):
    x, y = pair()
    p = plan((x, y), [buffer("output", S)], [KernelCall(kernel("add32"), (0, 1, 2))], [view(2, S)])
    with torch.inference_mode():
        assert p(x, y)[0].is_inference()


# --- wrong use, life


def test_wrong_calls(kernel):
    x, y = pair()
    p = plan((x, y), [buffer("output", S)], [KernelCall(kernel("add32"), (0, 1, 2))], [view(2, S)])
    with pytest.raises(TypeError, match="takes 2 inputs, 1 were given"):
        p(x)
    with pytest.raises(TypeError):
        p(x, y=y)
    with pytest.raises(TypeError, match="expected a tensor, got int"):
        p(x, 3)


def test_wrong_plans(kernel):
    x, _ = pair()
    wrong = [
        dict(buffers=[], steps=[KernelCall(kernel("nothing"), (0, 5))], outputs=[]),
        dict(buffers=[], steps=[KernelCall(0, ())], outputs=[]),
        dict(buffers=[buffer("arena", S)], steps=[], outputs=[], arena_bytes=127),
        dict(buffers=[buffer("arena", S)], steps=[], outputs=[view(1, S)], arena_bytes=128),
        dict(buffers=[buffer("elsewhere", S)], steps=[], outputs=[]),
        dict(buffers=[], steps=[], outputs=[3]),
        dict(buffers=[], steps=[], outputs=["x"]),
        dict(buffers=[buffer("output", S)], steps=[extern("t", len, (), (1,))], outputs=[]),
        dict(buffers=[buffer("extern", S)], steps=[], outputs=[view(1, S)]),
        dict(
            buffers=[buffer("extern", S)], steps=[KernelCall(kernel("nothing"), (1,))], outputs=[]
        ),
        dict(buffers=[buffer("input", S)], steps=[], outputs=[]),
        dict(buffers=[], steps=[], outputs=[view(0, S)], repeated={0: 0}),
    ]
    for case in wrong:
        with pytest.raises(ValueError):
            plan((x,), **case)


def test_libraries(tmp_path, kernel):
    with pytest.raises(OSError, match="cannot open"):
        _runtime.load_library(str(tmp_path / "missing.so"))
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(OSError):
        _runtime.load_library(str(tmp_path / "text.so"))
    with pytest.raises(AttributeError, match="exports no missing"):
        kernel("missing")
    assert (
        _runtime.torch_symbol("aoti_torch_empty_strided")
        and _runtime.torch_symbol("no_such_thing") == 0
    )


def test_everything_is_freed():
    constant, x = torch.randn(4, 8), torch.randn(4, 8)
    refs = []

    def make():
        class Owner:
            pass

        owner = Owner()

        def function(t, keep=owner):
            return t + 1

        p = plan(
            (x,),
            [
                buffer("extern", S),
                buffer("constant", S, constant=constant),
                buffer("extern", (8, 4)),
            ],
            [
                extern("test.f", function, (view(0, S),), (1,)),
                extern("test.f", function, (view(2, (8, 4), (1, 8)),), (3,)),
            ],
            [view(1, S)],
        )
        owner.plan = p
        p(x)
        refs.append(weakref.ref(owner))

    make()
    gc.collect()
    assert refs[0]() is None


def test_calls_do_not_leak(kernel):
    x, y = pair()
    p = plan(
        (x, y),
        [buffer("arena", S), buffer("output", S), buffer("extern", S), buffer("extern", (8, 8))],
        [
            KernelCall(kernel("add32"), (0, 1, 2)),
            KernelCall(kernel("twice32"), (2, 3)),
            extern("aten.neg.default", aten.neg.default, (view(2, S),), (4,)),
            extern("aten.mm.default", aten.mm.default, (view(0, (8, 4), (1, 8)), view(1, S)), (5,)),
        ],
        [view(3, S), view(4, (8, 4), (1, 8)), view(5, (8, 8))],
        arena_bytes=128,
    )

    def pages():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    def grown():
        before = pages()
        for _ in range(5000):
            p(x, y)
        return (pages() - before) * 4

    # a leak grows every time, an allocator only now and then
    assert min(grown() for _ in range(4)) < 256
