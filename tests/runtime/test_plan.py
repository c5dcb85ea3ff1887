"""The native plan: kernels, library calls, memory, results, and what happens when something fails."""

import gc
import threading
import weakref

import pytest
import torch

from frameloom.runtime import _runtime
from frameloom.runtime.spec import (
    BufferSpec,
    CheckCall,
    ExternCall,
    KernelCall,
    PlanSpec,
)
from tests.runtime.plans import (
    CPU,
    S,
    aten,
    buffer,
    extern,
    pair,
    plan,
    view,
)


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
