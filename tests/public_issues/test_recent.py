"""Issues of 2026, and what they made us look for: copies and writes in turn, guards of the rarer kinds, roundings."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from frameloom import jit
from tests.public_issues.cases import Cases

cases = Cases()


# --- writes


@cases(198033)
def several_tensors_added_to_mirrored_selves():
    def f(x, y):
        torch._foreach_add_([x, y], [x.flip(0), y.t()])
        return x

    return f, (torch.rand(8, 8), torch.rand(5, 5)), (torch.rand(9, 7), torch.rand(3, 3))


@cases(198270)
def mirrored_self_added_after_scattered_writes():
    def f(x, write):
        where = torch.arange(x.size(0))
        if write == "put":
            x.index_put_((where,), x * 2)
        elif write == "copy":
            x.index_copy_(0, where, x * 2)
        else:
            x.index_add_(0, where, x * 2)
        x.add_(x.flip(0))
        x[1:] = x[:-1].clone()
        return x

    return f, (torch.rand(4, 8), "put"), (torch.rand(4, 8), "copy"), (torch.rand(4, 8), "add")


@cases(198131)
def source_of_a_copy_written_afterwards():
    def f(to, source):
        to[0:, :] = source[0:, :]
        source.add_(1)
        return source

    return f, (torch.zeros(3, 4), torch.arange(12.0).view(3, 4))


@cases(183575)
def momentum_written_and_read_again():
    def f(p, q, x, m, n):
        y = x.bfloat16() @ p.bfloat16()
        z = (y.float() @ q).relu()
        g, h = x.t() @ z, y.float().t() @ z
        m.lerp_(g, 0.05)
        n.lerp_(h, 0.05)
        p.add_(m, alpha=-0.01)
        q.add_(n, alpha=-0.01)
        return z.sum()

    return f, tuple(torch.randn(16, 16) / 4 for _ in range(5))


@cases(122457)
def complex_view_of_a_fresh_result():
    def f(x):
        z = torch.view_as_complex(x + 1)
        return torch.view_as_real(z) + 1, torch.view_as_real(z + 1)

    return f, (torch.zeros(4, 2),)


# --- guards


@cases(197811)
def closures_over_methods_of_tensors():
    def make(op):
        return lambda x, y: op(x, y)

    def f(x, y, which):
        return make(which)(x, y)

    x, y = torch.tensor(6.0), torch.tensor(3.0)
    kinds = (torch.Tensor.__add__, torch.Tensor.__mul__, torch.Tensor.sub, torch.Tensor.__rsub__)
    return f, *((x, y, kind) for kind in kinds)


@cases(178365)
def functions_of_one_code_with_other_defaults():
    def make(offset):
        def fn(x, offset=offset, *, scale=offset + 1):
            return (x + offset) * scale

        return fn

    def f(x, fn):
        return fn(x)

    return f, *((torch.ones(3), make(n)) for n in (0, 5, 0, 7))


# --- roundings


@cases(188048)
def whole_quotients_of_infinities():
    def f(a, b):
        return (
            torch.div(a, b, rounding_mode="floor"),
            a // b,
            torch.div(b, a, rounding_mode="trunc"),
        )

    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 3.0])
    calls = [
        (special.to(d)[:, None], special.to(d)) for d in (torch.float64, torch.float32, torch.half)
    ]
    return f, *calls


@cases(184408)
def quotients_next_to_whole_numbers():
    def f(a, b):
        return torch.div(a, b, rounding_mode="trunc"), torch.div(a, b, rounding_mode="floor")

    a = torch.tensor([14.999999, 26.999999, 13.999999, 148.0, 1073.0, 2112.0] * 3)
    return f, (a, torch.tensor([3.0, 3.0, 7.0, 37.0, 37.0, 33.0] * 3))


@cases(197895)
def whole_quotients_just_below():
    def f(a, b):
        return a // b, torch.floor_divide(a, b), a // 0.1

    a, b = torch.tensor([1.0, 0.5, 6.0, 1.0]), torch.tensor([0.1, 0.1, 0.2, 1 / 3])
    return f, (a, b), (a.double(), b.double()), (a.half(), b.half()), (a.bfloat16(), b.bfloat16())


@cases(189801)
def tiny_negative_elu_divided_by_zero():
    def f(x):
        return F.elu(x, alpha=0.52) / torch.zeros_like(x)

    return f, (-torch.tensor([1e-8, 1e-9, 1e-10, 1e-20, 1e-30, 1e-37]),)


@cases(183605)
def variance_rounded_to_zero():
    def f(x):
        return x * torch.rsqrt(x.var(dim=-1, keepdim=True) + 1e-9)

    return f, (torch.full((3, 5), 1e-10).half(),), (torch.rand(3, 5),)


@cases(195214)
def quotients_compared_with_their_maximum():
    def f(x):
        scaled = x / math.sqrt(48)
        ties = scaled == scaled.amax(-1, keepdim=True)
        return ties.sum(-1), ties / ties.sum(-1, keepdim=True)

    return f, (torch.randn(16, 64).bfloat16(),), (torch.randn(4, 64).half(),)


@cases(145466)
def rounded_cosines():
    def f(x):
        return x.cos().floor(), x.sin().round(), x.tan().floor()

    return f, (torch.randn(32, 32).half(),)


@cases(174172)
def sign_of_a_negative_zero_number():
    def f(x):
        return torch.copysign(x, -0.0), torch.ops.aten.copysign(x, other=-0.0), torch.copysign(x, 0)

    return f, (torch.randn(6),)


@cases(141753)
def number_divided_by_a_tensor():
    def f(y):
        return 11.0 / y, (11.0 / y.double()).float(), torch.tensor(11.0) / y

    return f, (torch.tensor([7.0]),)


@pytest.mark.parametrize("case", cases)
@torch.no_grad()
def test_issue(case):
    case.run()


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Linear(4, 4)

    def forward(self, x):
        return self.part(x)


@torch.no_grad()
def test_issue_197859_submodule_shadowed_by_an_entry_of_the_instance():
    holder, x = Holder(), torch.ones(2, 4)
    jitted = jit(holder)
    jitted(x)
    for _ in range(2):
        object.__setattr__(holder, "part", nn.Linear(4, 4))
        assert torch.equal(jitted(x), holder.forward(x))
    del holder.__dict__["part"]
    assert torch.equal(jitted(x), holder.forward(x))
