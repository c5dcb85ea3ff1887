"""Jitted functions of CUDA tensors: what is special about the device, not about the kernels."""

import copy
import importlib.util

import pytest
import torch
import torch.nn.functional as F

import frameloom
from tests.helpers import check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("frameloom.codegen.triton.module") is None,
        reason="no generator of Triton code",
    ),
]


def cuda(*shape, **options):
    return torch.randn(*shape, device="cuda", **options)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return cuda(64, 128)


def test_pointwise(x):
    check(lambda x: torch.relu(x + 1) * 2, x, graphs=1, breaks=0, kernels=1)


@pytest.mark.parametrize("number", [2.5, 3])
def test_a_number_in_the_cpus_memory(x, number):
    check(lambda x, n: n * x + x * n, x, torch.tensor(number), breaks=0)
    check(lambda x: x * torch.tensor(number), x, breaks=0)
    check(lambda x, n: x.sum() * n, x, torch.tensor(number), breaks=0)
    check(lambda x, n: (x * n.exp(), n.add_(1)), x, torch.tensor(2.5), breaks=0)


def test_two_devices_in_one_program(x):
    check(lambda x, y: (x + 1, y + 1, x.cpu() * y), x, torch.randn(64, 128))
    check(lambda y: y.cuda() * 2, torch.randn(8))
    check(lambda y: y.to("cuda") * 2, torch.randn(8))
    check(lambda x, y: x + y, x, torch.randn(64, 128))  # raises as eager does


def test_inputs_are_written(x):
    check(lambda x: x.mul_(2).add_(1), x, breaks=0)
    check(lambda x: x[1:].copy_(x[:-1] * 2), x)


def test_tensors_made_in_the_program(x):
    check(lambda x: x + torch.ones(128, device="cuda"), x, breaks=0)
    check(lambda x: x + torch.arange(128, device=x.device), x, breaks=0)
    check(lambda x: x * torch.tensor([2.0], device="cuda"), x, breaks=0)
    check(lambda x: x.new_zeros(128) + x, x, breaks=0)


@pytest.mark.skipif("torch.cuda.device_count() < 2")
def test_the_current_device_counts():
    made = frameloom.jit(lambda: torch.ones(8, device="cuda") * 2)
    assert made().device.index == 0
    with torch.cuda.device(1):
        assert made().device.index == 1
    assert made().device.index == 0


@pytest.mark.skipif("torch.cuda.device_count() < 2")
def test_tensors_of_another_device():
    f = lambda x: torch.softmax(x * 2, -1)
    jitted = frameloom.jit(f)
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        x = torch.randn(16, 64, device=device)
        torch.testing.assert_close(jitted(x), f(x))
        assert jitted(x).device == x.device


def test_lists_of_tensors_on_several_devices():
    """Each result lies where its tensor does."""
    f = lambda *xs: [y * 2 for y in torch._foreach_add(torch._foreach_exp(xs), 1.0)]
    jitted, last = frameloom.jit(f), f"cuda:{torch.cuda.device_count() - 1}"
    for places in ("cpu", "cuda"), ("cuda", last), ("cuda", "cuda"), (last, "cpu"):
        xs = [torch.randn(8, device=place) for place in places]
        torch.testing.assert_close(jitted(*xs), f(*xs))


@pytest.mark.skipif("torch.cuda.device_count() < 2")
def test_replicas_run_on_their_own_device():
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).cuda()
    plain = copy.deepcopy(module)
    frameloom.jit(module)
    for rows in (6, 9):
        x, sums = torch.randn(rows, 8, device="cuda"), []
        for model in module, plain:
            made = torch.nn.DataParallel(model, device_ids=[0, 1])(x)
            made.square().sum().backward()
            sums.append([made, *(p.grad for p in model.parameters())])
        torch.testing.assert_close(*sums)


def test_random_numbers_are_eagers(x):
    f = lambda x: F.dropout(x, 0.3) + torch.rand_like(x) * torch.randn(64, 128, device="cuda")
    jitted = frameloom.jit(f)
    for _ in range(2):
        torch.manual_seed(1)
        want = f(x), torch.rand(3, device="cuda")
        torch.manual_seed(1)
        got = jitted(x), torch.rand(3, device="cuda")
        torch.testing.assert_close(got, want)


def test_conditions_on_data(x):
    def f(x):
        if torch.isnan(x).any():
            raise ValueError("not a number")
        return x + 1

    check(f, x)
    check(f, x * float("nan"))


def test_streams(x):
    f = frameloom.jit(lambda x: torch.relu(x + 1) * 2)
    f(x)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(5)
        out = f(x)
    side.synchronize()
    assert torch.equal(out, torch.full_like(out, 12))


def test_recorded_into_a_graph(x):
    f = frameloom.jit(lambda x: torch.softmax(x @ x.t(), -1))
    f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = f(x)
    x.normal_()
    graph.replay()
    torch.testing.assert_close(out, torch.softmax(x @ x.t(), -1))


def test_unaligned_views():
    base = cuda(4100)
    f = frameloom.jit(lambda x: torch.relu(x) + 1)
    for start in (0, 1, 4, 2, 0):
        x = base[start : start + 4096]
        assert torch.equal(f(x), torch.relu(x) + 1)


def test_memory_comes_back(x):
    f = frameloom.jit(lambda x: torch.softmax(x @ x.t(), -1).sum(0))
    f(x)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        f(x)
    assert torch.cuda.memory_allocated() == before


def test_convolutions_and_layouts():
    conv = torch.nn.Conv2d(8, 16, 3, padding=1).cuda()
    image = cuda(2, 8, 32, 32)
    for a in (image, image.to(memory_format=torch.channels_last)):
        for m in (conv, conv.to(memory_format=torch.channels_last)):
            check(lambda a, m: F.relu(m(a)), a, m, rtol=1e-4, atol=1e-4)


def test_autocast():
    linear = torch.nn.Linear(64, 64).cuda().requires_grad_(False)

    def f(x):
        with torch.autocast("cuda", torch.bfloat16):
            return F.gelu(linear(x)).float()

    check(f, cuda(8, 64), rtol=1e-2, atol=1e-2)


def test_settings_of_cuda_are_looked_at_again(x):
    f = frameloom.jit(lambda x: x + torch.cuda.current_device())
    assert torch.equal(f(x), x)
    g = frameloom.jit(lambda x: x + 1 if torch.cuda.is_current_stream_capturing() else x + 2)
    assert torch.equal(g(x), x + 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = g(x)
    graph.replay()
    assert torch.equal(out, x + 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention(causal, dtype):
    q = cuda(2, 64, 4, 32, dtype=dtype).transpose(1, 2)
    check(
        lambda q: F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=causal) + 1, q, breaks=0
    )


def test_attention_under_autocast():
    def fn(q):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return F.scaled_dot_product_attention(q, q, q)

    check(fn, cuda(2, 4, 64, 32), breaks=0)


def test_small_layers(x):
    layers = torch.nn.Sequential(torch.nn.Linear(128, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    check(layers.cuda().eval(), x[:4], breaks=0)


@pytest.mark.parametrize("train", [False, True])
def test_batch_norm(train):
    norm = torch.nn.BatchNorm2d(8).cuda().train(train)
    check(lambda x: torch.relu(norm(x)), cuda(4, 8, 32, 32), breaks=0)


@pytest.mark.parametrize("shape", [(3, 50257), (40, 33), (5, 4096), (2, 100000)])
def test_rows(shape):
    x = cuda(*shape)
    check(lambda x: (x.softmax(-1), x.sum(-1), x.var(-1), x.argmax(-1), x.amax(0)), x, breaks=0)
    check(lambda x: (x.bfloat16().log_softmax(-1), x.half() * 2 + 1), x, breaks=0)


DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SEES = {
    "rows": lambda i, j: i >= j,
    "keys": lambda i, j: (j < 50).expand(2, 1, 64, 64),
    "window": lambda i, j: (i >= j) & (i - j < 9),
    "everything": lambda i, j: (j >= 0).expand(2, 1, 64, 64),
    "strange rows": lambda i, j: (i >= j) & (i != 7),
}


def positions(n):
    at = torch.arange(n, device="cuda")
    return at.unsqueeze(1), at.unsqueeze(0)


def near(fn, dtype, *args):
    """Compiled, compared by error with what F64 gives: no worse than what eager is, or nearly."""
    exact = fn(*(a.double() if a.is_floating_point() else a for a in args))
    plain, found = fn(*args), frameloom.jit(fn)(*args)
    assert (found.shape, found.stride(), found.dtype) == (plain.shape, plain.stride(), dtype)
    assert torch.equal(found.isnan(), plain.isnan())
    error, worst = ((t.double() - exact).nan_to_num().abs().max() for t in (found, plain))
    assert error <= 1.5 * worst + 1e-6, (error, worst)


def heads(dtype, length=64):
    return [cuda(2, length, 4, 32, dtype=dtype).transpose(1, 2) for _ in range(3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sees", SEES)
def test_masks_of_attention(sees, dtype):
    def fn(q, k, v):
        mask = SEES[sees](*positions(64))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    near_sdpa(fn, dtype)
    near_sdpa(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        dtype,
        SEES[sees](*positions(64)),
    )


def near_sdpa(fn, dtype, *more):
    """PyTorch's kernels differ in what they give for a query that sees nothing."""
    q, k, v = heads(dtype)
    plain, found = fn(q, k, v, *more), frameloom.jit(fn)(q, k, v, *more)
    assert found.stride() == plain.stride()
    torch.testing.assert_close(found.nan_to_num(), plain.nan_to_num(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sees", [None, *SEES])
def test_attention_that_is_written_out(sees, dtype):
    def fn(q, k, v):
        scores = q @ k.transpose(-2, -1) / 32**0.5
        if sees is not None:
            scores = scores.masked_fill(~SEES[sees](*positions(64)), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 64, 128)

    near(fn, dtype, *heads(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_that_is_written_out_with_a_mask_to_add(dtype):
    def fn(q, k, v, bias):
        return (q @ k.transpose(-2, -1) * 0.2 + bias).softmax(-1) @ v

    near(fn, dtype, *heads(dtype), cuda(4, 64, 64, dtype=dtype))
    near(fn, dtype, *heads(dtype), cuda(64, 64, 4, dtype=dtype).permute(2, 0, 1))
    near(fn, dtype, *heads(dtype, 50), cuda(2, 1, 1, 50, dtype=dtype))


@pytest.mark.parametrize("value", [float("-inf"), -1e9])
def test_queries_that_see_nothing(value):
    def fn(q, k, v, sees):
        return (q @ k.transpose(-2, -1) * 0.2).masked_fill(sees == 0, value).softmax(-1) @ v

    sees = torch.ones(64, 64, device="cuda").tril()
    sees[5] = 0
    for dtype in (torch.float32, torch.bfloat16):
        near(fn, dtype, *heads(dtype), sees)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_products_with_odd_rows(dtype):
    x, w, b = cuda(1024, 1024, dtype=dtype), cuda(5001, 1024, dtype=dtype), cuda(5001, dtype=dtype)
    near(lambda x, w: F.linear(x, w), dtype, x, w)
    near(lambda x, w, b: F.linear(x, w, b).relu(), dtype, x, w, b)
    near(lambda x, w: (x.relu() * 0.1) @ w, dtype, cuda(2048, 2047, dtype=dtype), w[:2047])
    batch = cuda(32, 512, 1001, dtype=dtype)
    near(lambda x: torch.bmm(x, x.mT), dtype, batch)


@pytest.mark.parametrize(
    "op",
    [
        lambda z: F.avg_pool1d(z[None], 2),
        lambda z: F.max_pool2d(z[None], 2),
        lambda z: F.adaptive_avg_pool2d(z[None], 2),
        lambda z: z.argmax(0),
        lambda z: z.softmax(0),
        lambda z: z.sort(0),
    ],
)
@pytest.mark.parametrize("is_used", [True, False])
def test_ops_that_refuse_complex_numbers(op, is_used):
    def program(z):
        made = op(z)
        return made if is_used else z + 1

    z = cuda(3, 3, dtype=torch.complex64)
    with pytest.raises((RuntimeError, NotImplementedError)) as plain:
        program(z)
    with pytest.raises(type(plain.value)) as found:
        frameloom.jit(program)(z)
    assert str(found.value) == str(plain.value)


def test_a_call_on_two_devices_whose_result_nobody_reads(x):
    def program(x, y):
        n = (x + y).shape[0]
        return x * n

    check(program, x, torch.randn(()), breaks=0)
    for fn in (program, frameloom.jit(program)):
        with pytest.raises(RuntimeError, match="same device"):
            fn(x, torch.randn(128))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("op", [torch.argmax, torch.argmin])
def test_places_beyond_32_bits(op, dynamic):
    x = torch.ones(2**31 + 1027, dtype=torch.int8, device="cuda")
    x[2**31 + 5] = 2 if op is torch.argmax else 0
    assert frameloom.jit(lambda x: op(x), dynamic=dynamic)(x).item() == 2**31 + 5


def test_a_part_without_elements():
    """No address has to lie on the device.  The call draws numbers, so that it cannot start anew."""

    def fn(x, y, places):
        drawn = torch.rand(2, device="cuda")
        return drawn, y.index_put((places,), x[-1]), x[1:].cumsum(0)

    found = []
    for side in (fn, frameloom.jit(fn)):
        torch.manual_seed(0)
        x, y = (torch.ones(2, 0, dtype=torch.int16, device="cuda") for _ in range(2))
        found.append(side(x, y, torch.zeros(1, dtype=torch.long, device="cuda")))
    torch.testing.assert_close(*found)
