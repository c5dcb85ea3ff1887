"""Values, dtypes and strides of single ops and small chains."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.public_issues.cases import Cases

cases = Cases()
NAN = float("nan")


@cases(108520)
def sum_of_int32_made_int64():
    return (lambda x: (x + x).to(torch.int64)), (torch.tensor(2147483647, dtype=torch.int32),)


@cases(105264)
def sum_of_bytes_made_int16():
    return (lambda x: (x + x).to(torch.int16)), (torch.tensor(128, dtype=torch.uint8),)


@cases(93829)
def negated_bytes_compared():
    def f(x):
        y = torch.neg(x)
        return y, torch.lt(y, torch.tensor(4, dtype=torch.uint8))

    return f, (torch.tensor(6, dtype=torch.uint8),)


@cases(187018)
def negated_bytes_summed():
    def f(x):
        y = -x.abs()
        return torch.cat([y, y]).sum()

    return f, (torch.tensor([200, 200], dtype=torch.uint8),)


@cases(97124)
def ints_scaled_by_a_float():
    def f():
        a = torch.zeros(1, 2, dtype=torch.int32)
        return (a + a).to(torch.float32) * 0.8

    return f, ()


@cases(191308)
def products_of_bytes():
    return lambda a, b: torch.matmul(a, b), (
        torch.ones(1, 1, 2, dtype=torch.int8),
        torch.ones(1, 2, 2, dtype=torch.int8),
    )


@cases(183901)
def large_products_of_int64():
    return (lambda x: torch.arange(0, 9) * torch.tensor([1500000000])), (torch.zeros(1),)


@cases(190764)
def sums_of_products_of_int32():
    def f(x, y, z, p, q, r):
        return (x @ y + x @ z + p @ q + p @ r).sum(dim=1)

    ends = torch.tensor([[2**31 - 1, -(2**31)], [2**30 + 3, -7]], dtype=torch.int32)
    return f, tuple(ends.roll(k).reshape(2, 2) for k in range(6))


@cases(197091)
def ldexp_of_other_dtypes():
    def f(a, b):
        return torch.ldexp(a, b)

    return (
        f,
        (torch.ones(3, 4, dtype=torch.bool), torch.randn(3, 4).half()),
        (torch.randint(1, 4, (3, 4)), torch.randn(3, 4).bfloat16()),
        (torch.randn(3, 4).half(), torch.randn(3, 4)),
    )


@cases(143555)
def shift_by_64():
    return (
        lambda a, b: torch.bitwise_right_shift(a, b),
        (torch.tensor(1000), torch.tensor(64)),
        (torch.tensor([-5, 5]), torch.tensor([70, 63])),
    )


@cases(143566)
def left_shift_by_too_much():
    return (
        lambda a, b: torch.bitwise_left_shift(a, b),
        (torch.tensor(1000), torch.tensor(64)),
        (torch.tensor([-5, 5]), torch.tensor([70, 63])),
    )


@cases(118265)
def shift_into_a_given_tensor():
    def f(out, a, b):
        return torch.bitwise_right_shift(a, b, out=out)

    make = lambda: torch.randint(-32768, 32767, (7, 2, 6, 7))
    return f, (make().short(), make(), make())


@cases(129966)
def copy_of_a_view_of_smaller_elements():
    return (lambda x: torch.view_copy(x, torch.int8)), (
        torch.zeros(2, dtype=torch.int32) + 0x00010203,
    )


@cases(143821)
def bits_of_bfloat16():
    return (lambda x: (x.view(torch.int16) & 0x7F80).view(x.dtype)), (
        torch.tensor([0.5, -3.3, 7.0]).bfloat16(),
    )


@cases(179570)
def exponents_as_bytes():
    def f(x):
        exponent = torch.log2(x.abs().amax(-1)).ceil().clamp(-127, 127)
        return (exponent + 127).to(torch.uint8)

    return f, (torch.randn(64, 32),)


@cases(126848)
def denormal_results():
    return (lambda x: x * 2.0 ** (-127 + 3)), (torch.tensor(0.1875),)


@cases(93784)
def extremes_of_nan():
    def f(a, b):
        return (
            torch.relu(a), torch.clamp_min(a, 0.5), torch.maximum(a, b), torch.minimum(b, a), torch.clamp(a, b, b + 1), torch.clamp_min(a, b),
        )  # fmt: skip

    a, b = torch.arange(-3.0, 4), torch.zeros(7)
    a[1] = a[-1] = b[2] = NAN
    return f, (a, b), (a.half(), b.half()), (torch.randint(4, (7,)), torch.zeros(7))


@cases(118266)
def places_of_extremes_with_nan():
    def f(x):
        return x.argmax(), x.argmin(), x.argmax(1), x.argmin(0)

    x = torch.randn(6, 9)
    x[2, 4] = x[5, 1] = x[5, 2] = NAN
    return f, (x,)


@cases(143978)
def angle_of_nan():
    def f(x):
        return torch.sin(torch.positive(torch.atan(torch.angle(torch.rsqrt(x)))))

    return f, (torch.tensor([0.7, -1.17, 0.5, 1.4, -2.29, -0.32, 0.0]),)


@cases(93365)
def cat_of_a_global_tensor():
    p = torch.tensor([[4.9334, 5.5571]])

    def f():
        both = torch.cat([p, p], dim=0)
        return both, both * both

    return f, ()


@cases(160730)
def branch_on_a_mean():
    def f(x):
        wide = torch.tan(x).expand(31, 51, 1)
        e = wide - wide * 0.5 if torch.mean(wide).item() > 0.5 else wide + wide * 0.5
        return torch.sin(e)

    return f, (torch.rand(31, 51, 1).double() * 10,)


@cases(109925)
def cumulative_products():
    return (lambda x: (x.cumprod(0), x.cumsum(1), x.logcumsumexp(0))), (torch.rand(5, 4),)


@cases(96064)
def unrolled_loop():
    def f(x):
        total = torch.zeros_like(x[0])
        for i in range(x.shape[0]):
            total = total + x[i] * (i + 1)
            x[i] = total
        return total, x

    return f, (torch.randn(6, 3),)


@cases(96064)
def loop_over_rows_of_another_shape():
    def f(x):
        out = torch.zeros(x.shape)
        for i in range(1, x.shape[0]):
            out[i] = out[i - 1] + x[i]
        return out

    return f, (torch.randn(4, 2),), (torch.randn(7, 2),), (torch.randn(1, 2),)


@cases(143182)
def layer_norm_of_far_values():
    m = nn.LayerNorm(64)
    return m, (torch.randn(4, 64) * 10 + 100,)


@cases(143720)
def pooling_of_one_element():
    return (lambda x: F.avg_pool1d(x, 1, 1, 0)), (torch.randn(1, 1, 1),)


@cases(143752)
def adaptive_pooling_of_ints():
    return (lambda x: F.adaptive_max_pool1d(x, 2)), (torch.arange(8).reshape(1, 1, 8),)


@cases(151918)
def embedding_by_positions_at_the_end():
    return (lambda w, i: torch.embedding(w, i[:, -2:]) + 1), (
        torch.randn(9, 4),
        torch.randint(0, 9, (3, 5)),
    )


@cases(146390, grad=True)
def gradient_of_products_with_an_embedding():
    m = nn.Embedding(3, 16)

    def f(x, classes):
        x.requires_grad_()
        weights = m(classes).view(-1, 4, 4)
        aux = torch.bmm(weights, x.unsqueeze(-1)).square().sum()
        return torch.autograd.grad(aux, [x])[0]

    return f, (torch.randn(6, 4), torch.randint(0, 3, (6,)))


@cases(163420)
def diagonal_filled_with_a_number_taken_out():
    return (lambda a, b: b.clone().fill_diagonal_(a.item())), (torch.tensor(2.5), torch.zeros(3, 4))


# --- layouts


@cases(144699)
def like_a_transposed_tensor():
    def f(x):
        return (
            torch.full_like(x, 3),
            torch.ones_like(x),
            torch.zeros_like(x),
            torch.empty_like(x).fill_(1),
        )

    return f, (torch.randn(4, 5, 6).transpose(1, -1),)


@cases(130394)
def result_in_given_strides():
    def f(x):
        out = torch.empty_strided(x.size(), x.stride())
        out[:] = x + x
        return out, out.as_strided((4,), (1,))[:2] * 0 + 1

    return f, (torch.as_strided(torch.randn(16, 16), (16, 8), (16, 1)),)


@cases(116433)
def strides_of_dimensions_of_one():
    return (lambda x: (x + 1).view(-1, 1, 2)), (torch.arange(8.0),), (torch.arange(10.0),)


@cases(187173)
def unpooled_in_channels_last():
    x = torch.randn(1, 2, 3, 6).to(memory_format=torch.channels_last)
    pooled, places = F.max_pool2d(x, 3, padding=1, return_indices=True)
    return (lambda p, i: F.max_unpool2d(p, i, 3, 3, 1, output_size=(1, 2, 3, 6))), (pooled, places)


@cases(93336)
def lerp_of_transposed_tensors():
    return (lambda a, b: torch.lerp(a, b, 0.3)), (torch.randn(3, 4).t(), torch.randn(4, 3))


@cases(93336)
def lerp_of_two_layouts():
    return (lambda a, b, w: torch.lerp(a, b, w)), (
        torch.randn(3, 4).t(),
        torch.randn(3, 4).t(),
        torch.rand(4, 3),
    )


# --- varying sizes


@cases(116493)
def differences_of_another_length():
    return (
        (lambda x: torch.diff(x, dim=-1).sum(-1)),
        (torch.randn(5, 4),),
        (torch.randn(6, 4),),
        (torch.randn(6, 7),),
    )


@cases(145587)
def number_of_rows_as_a_factor():
    return (
        (lambda a, b: a.shape[0] * a * b),
        (torch.randn(4, 3), torch.randn(4, 3)),
        (torch.randn(8, 3), torch.randn(8, 3)),
    )


@cases(135796, dynamic=True)
def repeated_with_a_bool_beside():
    return (lambda x, y: x.repeat([2])), (torch.randn(20), True), (torch.randn(40), True)


@cases(120801)
def two_lengths_in_one_call():
    def g(x):
        return x.sin() + x.shape[0]

    return (
        (lambda a, b: (g(a), g(b))),
        (torch.randn(5), torch.randn(300)),
        (torch.randn(300), torch.randn(7)),
    )


@cases(128319)
def counter_of_a_module():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.counter = 0
            self.linear = nn.Linear(1, 1)

        def forward(self, x):
            self.counter += 1
            return self.linear(x) * self.counter

    return Counting(), *[(torch.randn(1, 1),) for _ in range(6)]


@cases(123784)
def inference_mode_first():
    def f(x):
        return x.sin().cos()

    def g(x, inference):
        with torch.inference_mode(inference):
            return f(x)

    return g, (torch.rand(4, 4), True), (torch.rand(4, 4), False), (torch.rand(4, 4), True)


@cases(159239)
def rotary_positions_in_bfloat16():
    def f(q, cos, sin):
        half = q.shape[-1] // 2
        return q * cos + torch.cat([-q[..., half:], q[..., :half]], -1) * sin

    angle = torch.arange(6.0)[:, None] * torch.exp(-torch.arange(8.0) / 4 * math.log(100))
    return f, (torch.randn(2, 6, 8).bfloat16(), angle.cos().bfloat16(), angle.sin().bfloat16())


@pytest.mark.parametrize("case", cases)
@torch.no_grad()
def test_issue(case):
    case.run()
