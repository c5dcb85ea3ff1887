"""What small tensors of ints and bools decide is taken as it is in the captured call, and the graph breaks there once it is otherwise."""

import pytest
import torch
from torch import nn

import frameloom
from tests.jit.gradients.training import caught, leaf, same_training

MASKS = [[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1]]


def called(fn, masks=MASKS, kind=torch.long):
    def program(jit):
        net, norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        f, seen = jit(lambda x, m: fn(net, norm, x, m)), []
        for mask in masks:
            x = leaf(4, 3)
            result = caught(f, x, torch.tensor(mask).to(kind))
            seen += [result, norm.running_mean.clone(), torch.rand(1)]
            for part in result if isinstance(result, tuple) else (result,):
                if isinstance(part, torch.Tensor) and part.requires_grad:
                    part.sum().backward()
                    break
            seen += [x.grad, [p.grad for p in net.parameters()]]
        return seen

    return program


def branch(net, norm, x, m):
    y = net(x)
    if m.all():
        y = y * 2
    return y + m


def branch_behind_writes(net, norm, x, m):
    y = torch.dropout(norm(net(x)), 0.5, True)
    if (m * 2 > 1).all() or not m.bool().any():
        return y.sin()
    return norm(y) + m


def flag(net, norm, x, m):
    whole = (m != 0).flatten().all().item()
    y = net(x) * 2
    return (y if whole else y * 3), whole


def member(net, norm, x, m):
    y = net(x)
    return y * 2 if 0 in m else y + m


def of_floats(net, norm, x, m):
    far = (1.0 - m.to(x.dtype)) * -1e4
    y = net(x) + far
    return y.sum() if (far < 0).any() else y.mean()


def repeated(net, norm, x, m):
    y = net(x)
    while (m > 0).any():
        m = m - 1
        y = y * 2
    return y


def of_what_is_written(net, norm, x, m):
    m += 1
    y = net(x)
    return y * 2 if (m > 1).all() else y + m


def inside_a_try(net, norm, x, m):
    try:
        return net(x) * 2 if m.all() else net(x)[:, m]
    except IndexError:
        return x


def behind_a_break(net, norm, x, m):
    y, seen = net(x), [m]
    print(end="")
    seen.append(y)
    if m.all():
        seen.append(norm(y) * 2)
    return seen[-1] * len(seen), seen


def between_breaks(net, norm, x, m):
    total = 0
    for part in (m[:1], m[1:], m):
        y = net(x) * 2
        total = total + (y if part.any() else y.sin())
        print(end="")
    return total


def in_a_callee(net, norm, x, m):
    def chosen(part):
        y = net(x)
        return norm(y) if part else y * 2

    return sum(chosen(part) for part in m.bool())


FUNCTIONS = (behind_a_break, between_breaks, in_a_callee, branch, branch_behind_writes, flag, member, of_floats, repeated, of_what_is_written, inside_a_try)  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_another_choice_later(fn):
    same_training(called(fn), plain=None)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_always_the_same_choice(fn):
    same_training(called(fn, [[1, 1, 1]] * 3), plain=None)
    if fn in (branch, branch_behind_writes, flag, member, of_floats):
        stats = frameloom.stats()
        assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_it_breaks_after_the_first_surprise():
    same_training(called(branch), plain=None)
    assert frameloom.stats()["breaks"] == 1


def test_what_floats_decide_breaks_at_once():
    same_training(called(lambda net, norm, x, m: net(x) * 2 if x.sum() > 0 else net(x)))
    assert frameloom.stats()["breaks"] == 1


def clamped(net, norm, x, m):
    y = norm(net(x))
    if not torch.isfinite(y).all():
        y = torch.clamp(y, -1, 1)
    return y * 2


def skipped(net, norm, x, m):
    loss = net(x).square().mean()
    if torch.isnan(loss) or torch.isinf(loss):
        return loss.detach() * 0
    return loss * 2


def told(net, norm, x, m):
    y = net(x)
    bad = torch.isnan(y).any() | (y != y).any().logical_not().logical_not()
    return y.nan_to_num() if bad.item() else y * 2


@pytest.mark.parametrize("fn", [clamped, skipped, told], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("bad", [torch.inf, torch.nan, None])
def test_numbers_that_are_not_finite(fn, bad):
    def poisoned(net, norm, x, m):
        return fn(net, norm, x * m.select(0, 0), m)

    masks = [[1.0]] * 3 if bad is None else [[1.0], [bad], [1.0], [bad], [1.0]]
    same_training(called(poisoned, masks, torch.float), plain=None)
    stats = frameloom.stats()
    assert (stats["breaks"] > 0) is (bad is not None), stats
    assert bad is not None or stats["graphs"] == 1, stats


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_steps_that_are_left_out(name, raises):
    """Nothing of the model or the optimizer is written before it is known."""

    def program(jit):
        net = nn.Sequential(
            nn.BatchNorm1d(3), nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1)
        )
        opt = getattr(torch.optim, name)(net.parameters(), lr=0.1)

        @jit
        def step(x):
            opt.zero_grad()
            loss = net(x).square().mean()
            if raises and torch.isnan(loss):
                raise ValueError("not finite")
            if not torch.isfinite(loss):
                return loss.detach()
            loss.backward()
            opt.step()
            return loss.detach()

        seen = []
        for k in range(8):
            x = torch.randn(4, 3)
            if k in (3, 4, 6):
                x[0] = torch.nan if raises else torch.inf
            seen += [caught(step, x), [p.detach().clone() for p in net.parameters()]]
            seen += [torch.rand(1), [b.clone() for b in net.buffers()]]
        return seen

    same_training(program, plain=None)
    if raises:
        assert not frameloom.stats()["breaks"]


def test_members():
    def fn(net, norm, x, m):
        return net(x) * (2 if 1 in m else 3) * (2 if 1.5 in m else 3), True in m, m[0] in m

    same_training(called(fn), plain=None)
    same_training(called(lambda net, norm, x, m: (net(x), "a" in m)), plain=None)
    same_training(called(lambda net, norm, x, m: (net(x), None in m)), plain=None)


def test_under_fullgraph():
    """The whole graph or an error, whatever the data."""
    f = frameloom.jit(lambda x, m: x * 2 if m.all() else x, fullgraph=True)
    with pytest.raises(frameloom.FullGraphError):
        f(torch.randn(3), torch.ones(3, dtype=torch.bool))
