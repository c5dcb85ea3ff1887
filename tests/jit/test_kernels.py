"""What becomes one kernel, checked by the report of whole jitted calls."""

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import check

pytestmark = pytest.mark.compiled

W, B = torch.randn(48), torch.randn(48)


def softmax(x):
    return F.softmax(x, -1)


def softmax_middle(x):
    return F.softmax(x, 0)


def log_softmax(x):
    return F.log_softmax(x, -1)


def norm_gelu_residual(x, r):
    h = x + r
    return F.gelu(F.layer_norm(h, (48,), W, B)), h


def rms_norm(x):
    v = x.float().pow(2).mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(v + 1e-6)).to(x.dtype) * W


def cross_entropy(x, t):
    return F.cross_entropy(x.float(), t)


def rope(q, c, s):
    a, b = q[..., :24], q[..., 24:]
    return q * c + torch.cat((-b, a), -1) * s


def swiglu(a, b):
    return F.silu(a) * b


def transposed_sum(a, b):
    return a.t() + b


def sin_cos_exp_sum(x):
    return torch.exp(torch.cos(torch.sin(x))).sum()


def column_sum(x):
    return (x * 2).sum(0)


def sibling_reductions(x):
    return x.sum(-1), x.amax(-1), (x * x).mean(-1)


def bias_relu_scale(x):
    return torch.relu(x + B) * W


def variance(x):
    return x.var(-1), x.std(-1, unbiased=False)


def masked_softmax(x):
    return torch.softmax(x.masked_fill(x > 1, float("-inf")) / 3, -1)


X, R = torch.randn(37, 48), torch.randn(37, 48)
SQUARE = torch.randn(48, 48)
CASES = [
    (softmax, X), (softmax_middle, X), (log_softmax, X), (norm_gelu_residual, X, R), (rms_norm, X),
    (cross_entropy, X, torch.randint(0, 48, (37,))), (rope, torch.randn(2, 4, 9, 48), torch.randn(9, 48), torch.randn(9, 48)),
    (swiglu, X, R), (transposed_sum, SQUARE, SQUARE + 1), (sin_cos_exp_sum, X), (column_sum, X), (sibling_reductions, X),
    (bias_relu_scale, X), (variance, X), (masked_softmax, X),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].__name__)
def test_one_kernel(case):
    check(*case, graphs=1, breaks=0, kernels=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].__name__)
def test_other_dtypes_agree(case, dtype):
    fn, *args = case
    args = [a.to(dtype) if a.is_floating_point() else a for a in args]
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}[dtype]
    if fn in (rms_norm, cross_entropy):
        tolerance = max(tolerance, 1e-5)  # they compute in float32 themselves
    if fn in (norm_gelu_residual, bias_relu_scale, rms_norm):
        fn_globals = fn.__globals__
        saved = fn_globals["W"], fn_globals["B"]
        fn_globals["W"], fn_globals["B"] = W.to(dtype), B.to(dtype)
        try:
            check(fn, *args, graphs=1, breaks=0, rtol=tolerance, atol=tolerance)
        finally:
            fn_globals["W"], fn_globals["B"] = saved
    else:
        check(fn, *args, graphs=1, breaks=0, rtol=tolerance, atol=tolerance)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(8)

    def forward(self, x):
        out = torch.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += x
        return torch.relu(out)


def test_residual_block_is_two_convolutions_and_two_kernels():
    report = check(Block().eval(), torch.randn(2, 8, 14, 14), graphs=1, breaks=0, kernels=2)
    assert list(report.graphs[0].library_calls) == ["aten.convolution.default"] * 2


def test_batch_norm_in_training_is_one_kernel_beside_its_counter():
    check(torch.nn.BatchNorm2d(6).train(), torch.randn(4, 6, 7, 7), graphs=1, kernels=2, calls=3)


def test_attention_agrees():
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (torch.nn.Linear(32, 32) for _ in range(4))

        def forward(self, x):
            q, k, v = (p(x).view(2, -1, 4, 8).transpose(1, 2) for p in (self.q, self.k, self.v))
            a = F.softmax(torch.matmul(q, k.transpose(-2, -1)) / 8**0.5, dim=-1)
            return self.o(torch.matmul(a, v).transpose(1, 2).contiguous().view(2, -1, 32))

    check(Attention().eval(), torch.randn(2, 10, 32), graphs=1, breaks=0)


def out_of_range(w, i):
    return F.embedding(i, w) * 2


def out_of_range_gather(x, i):
    return x.gather(0, i) + 1


def out_of_range_target(x, t):
    return F.cross_entropy(x, t)


@pytest.mark.parametrize("fn", [out_of_range, out_of_range_gather, out_of_range_target])
def test_indices_out_of_range_raise_as_in_eager(fn):
    i = torch.tensor([[1, 99, 2]]) if fn is out_of_range_gather else torch.tensor([1, 99, 2])
    x = torch.randn(3, 5) if fn is out_of_range_target else torch.randn(7, 5)
    good = i.clamp(max=2)
    from tests.helpers import jit_for_test, observe

    jitted = jit_for_test(fn)
    want, got = observe(fn, (x, good), {}), observe(jitted, (x, good), {})
    torch.testing.assert_close(got.result, want.result)
    want, got = observe(fn, (x, i), {}), observe(jitted, (x, i), {})
    assert want.error is not None and type(got.error) is type(want.error)


def test_library_calls_with_default_arguments():
    def f(x):
        return (
            F.max_pool2d(x, 2),
            F.max_pool2d(x, 3, stride=1, padding=1),
            x.topk(2),
            x.sort(),
            F.avg_pool2d(x, 2),
        )

    check(f, torch.randn(2, 3, 8, 8), graphs=1, breaks=0)


def test_constants_made_in_the_function():
    def f(x):
        fresh = torch.tensor([1.0, 2.0, 3.0])
        y = x + fresh
        fresh.add_(1)
        return y, fresh, torch.tensor(5), torch.tensor([[1, 2], [3, 4]]).t()

    check(f, torch.randn(2, 3), graphs=1, breaks=0, calls=3)
