"""Writes in place, views and aliases."""

import pytest
import torch

from tests.public_issues.cases import Cases

cases = Cases()


def ar(*shape, dtype=torch.float32):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


@cases(94777)
def result_before_a_write():
    def f(x):
        y = torch.log(x)
        x.log_()
        return y

    return f, (torch.tensor(3.0),)


@cases(93824)
def write_behind_a_chain_of_squeezes():
    def f(x):
        least = x.min(0).values.squeeze(1)
        seen = least.squeeze(0)
        least.reciprocal_()
        return seen

    return f, (torch.rand(1, 1, 1, 1, 12),)


@cases(93259)
def unsqueezed_in_place():
    return (lambda x: x.unsqueeze_(0)), (torch.rand(1),)


@cases(198101)
def other_dtype_of_an_input_written_later():
    def f(x):
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)

    return f, (ar(4, 6, dtype=torch.int64) - 12,)


@cases(198102)
def write_through_windows_with_gaps():
    def f(x):
        v = x.unfold(1, 1, 5)
        v.add_(v)
        return x

    return f, (ar(4, 6, dtype=torch.int64) + 1,)


@cases(198102)
def fill_through_one_window():
    def f(x):
        x.view(24).unfold(0, 8, 24).index_fill_(1, torch.tensor([1, 3]), 7)
        return x + 1

    return f, (ar(4, 6),)


@cases(152425)
def write_to_one_element_of_an_expanded_tensor():
    def f(x):
        found = []
        for i in range(2):
            a = x[i].expand(2)
            a[-1] = 3
            found.append(a)
        return found

    return f, (torch.arange(2),)


@cases(125999)
def copied_into_a_part_of_the_argument():
    def f(a, b):
        high, low = torch.max(a, b), torch.min(a, b)
        a.copy_(high + torch.log(1 + torch.exp(low - high)))

    def g(whole, b):
        f(whole[..., 1, :], b)
        return whole

    return g, (torch.randn(1, 8, 2, 1026), torch.randn(1, 8, 1026))


@cases(138908)
def indexed_addition():
    def f(x, y):
        x = x + 10
        y[x] += y[x]

    return (
        f,
        (torch.full((1, 2), -10), torch.randn(2, 32)),
        (torch.full((1, 2), -9), torch.randn(2, 32)),
    )


@cases(185382)
def steps_with_a_number_taken_out():
    def step(p, g, m, v, t):
        t.add_(1)
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        n = t.item()
        root = (v.sqrt() / (1 - 0.999**n) ** 0.5).add_(1e-8)
        p.addcdiv_(m, root, value=-0.001 / (1 - 0.9**n))

    def f(p, g):
        p, g = p.clone(), g.clone()
        m, v, t = torch.zeros_like(p), torch.zeros_like(p), torch.zeros(())
        for _ in range(5):
            step(p, g, m, v, t)
        return p

    return f, (torch.randn(4, 3), torch.randn(4, 3))


@cases(94773)
def storage_given_to_an_alias():
    def f(x):
        alias = x[:]
        x.set_(torch.ones(3, 4))
        return alias

    return f, (torch.randn(2, 3),)


@cases(94773)
def data_given_to_an_alias():
    def f(x):
        alias = x[:]
        x.data = torch.ones(3, 4)
        return alias, x

    return f, (torch.randn(2, 3),)


@cases(113793)
def views_written_before_they_are_given():
    def f(blocks):
        for b in blocks:
            b.add_(1)
        return [b * 2 for b in blocks]

    def make():
        whole = torch.zeros(4, 4)
        blocks = [whole[:2], whole[2:, 1:]]
        blocks[0].mul_(0).add_(3)
        return (blocks,)

    return f, make()


@cases(184543)
def scattered_into_a_flat_view():
    def f(values, buffer, places):
        buffer.view(-1)[places] = values
        return buffer

    return f, (
        torch.ones(9, dtype=torch.uint8),
        torch.zeros(8, 8, dtype=torch.uint8),
        torch.arange(0, 36, 4),
    )


@cases(183894)
def argmin_behind_a_write():
    def f(x):
        x.sin_()
        return x.t().argmin(1), x.argmin()

    return f, (torch.randn(5, 7),)


@cases(158561)
def copy_of_what_has_a_history():
    def f(buffer, w):
        buffer.copy_((w * 2).detach())
        return buffer + 1

    return f, (torch.zeros(3), torch.ones(3, requires_grad=True))


@cases(136662, backward=True)
def additions_to_a_column():
    def f(x):
        y = torch.zeros_like(x)
        y[:, 0] += x[:, 2].abs()
        y[:, 0] += x[:, 2].abs()
        return y.sum()

    return f, (torch.randn(2, 3, requires_grad=True),)


@pytest.mark.parametrize("case", cases)
def test_issue(case):
    case.run()
