"""Scenarios for casts of weights that autocast keeps: each runs under `wrap`, returns what it has seen, and the weight."""

import gc

import torch

from frameloom.capture.tensors.cast_cache import REGION

X = torch.arange(6.0).reshape(2, 3) / 4


def region(**how):
    return torch.autocast("cpu", torch.bfloat16, **how)


def weight():
    return (torch.arange(9.0).reshape(3, 3) / 8 - 0.5).requires_grad_()


def change(w, by=1.0):
    with torch.no_grad():
        w.add_(by)


def interrupted():
    """A break."""
    gc.isenabled()


def change_behind_a_break(wrap):
    def fn(x, w):
        with region():
            a = x @ w
            interrupted()
            change(w)
            b = x @ w
            interrupted()
            c = (x * 2) @ w
        return a, b, c

    w = weight()
    f = wrap(fn)
    return [f(X, w) for _ in range(3)], w


def change_before_a_break(wrap):
    def fn(x, w):
        with region():
            a = x @ w
            change(w)
            interrupted()
            return a, x @ w

    w = weight()
    f = wrap(fn)
    return [f(X, w) for _ in range(3)], w


def change_before_the_cast(wrap):
    def fn(x, w):
        change(w)
        with region():
            y = w * 2
            change(w)
            interrupted()
            a = x @ w
            change(w)
            interrupted()
            return y, a, x @ w

    w = weight()
    f = wrap(fn)
    return [f(X, w) for _ in range(3)], w


def change_in_one_graph(wrap):
    def fn(x, w):
        with region():
            a = x @ w
            change(w)
            b = x @ w
        with region():
            return a, b, x @ w

    w = weight()
    f = wrap(fn)
    return [f(X, w) for _ in range(3)], w


def change_between_calls(wrap):
    w, seen = weight(), []
    f = wrap(lambda x, w: (x @ w).relu() + 1)
    for _ in range(4):
        with region():
            seen.append(f(X, w))
            change(w)
            seen.append(f(X, w))
            change(w)
            seen.append(X @ w)
        seen.append(f(X, w))
        with region():
            seen.append(X @ w)
            change(w)
            seen.append(f(X, w))
    return seen, w


def optimizer_between_calls(wrap):
    w, seen = weight(), []
    step = torch.optim.SGD([w], lr=0.5)
    f = wrap(lambda x, w: (x @ w).sin())
    for _ in range(3):
        with region():
            loss = f(X, w).square().sum()
            loss.backward()
            step.step()
            step.zero_grad()
            seen.append(f(X, w))
    return seen, w


def whole_step_under_a_region(wrap):
    w = weight()
    step = torch.optim.SGD([w], lr=0.5)

    def train(x):
        loss = (x @ w).square().sum()
        loss.backward()
        step.step()
        step.zero_grad()
        return loss.detach(), x @ w

    f, seen = wrap(train), []
    for _ in range(3):
        with region():
            seen += [f(X), f(X * 2)]
        seen.append(f(X))
    return seen, w


def a_step_with_a_bias(wrap):
    w, v = weight(), torch.ones(3, requires_grad=True)
    step = torch.optim.SGD([w, v], lr=0.5)

    def train(x):
        change(w, -0.5)
        (x @ w + v).square().sum().backward()
        interrupted()
        step.step()
        step.zero_grad()
        return x @ w + v

    f, seen = wrap(train), []
    for _ in range(3):
        with region():
            seen += [f(X), f(X * 2)]
        seen.append(f(X))
    return [*seen, v.detach().clone()], w


def functions_share_a_weight(wrap):
    w, seen = weight(), []
    f, g = wrap(lambda x, w: x @ w), wrap(lambda x, w: (x + 1) @ w)
    for _ in range(3):
        with region():
            seen.append(f(X, w))
            change(w)
            seen.append(g(X, w))
    return seen, w


def cleared_inside(wrap):
    def fn(x, w):
        a = x @ w
        change(w)
        torch.clear_autocast_cache()
        return a, x @ w

    w, f, seen = weight(), wrap(fn), []
    for _ in range(3):
        with region():
            seen += [f(X, w), f(X, w)]
            change(w)
            seen.append(X @ w)
    return seen, w


def cleared_between(wrap):
    w, f, seen = weight(), wrap(lambda x, w: x @ w), []
    for _ in range(3):
        with region():
            seen.append(f(X, w))
            change(w)
            torch.clear_autocast_cache()
            seen.append(f(X, w))
            change(w)
            seen.append(f(X, w))
    return seen, w


def without_cache(wrap):
    def fn(x, w):
        a = x @ w
        interrupted()
        change(w)
        return a, x @ w

    w, f, seen = weight(), wrap(fn), []
    for _ in range(3):
        with region(cache_enabled=False):
            seen.append(f(X, w))
            change(w)
            seen.append(f(X, w))
        with region(), region(cache_enabled=False):
            seen.append(f(X, w))
    return seen, w


def with_and_without_cache(wrap):
    w, f, seen = weight(), wrap(lambda x, w: x @ w), []
    for _ in range(2):
        for keeps in (False, True):
            with region(cache_enabled=keeps):
                seen.append(f(X, w))
                change(w)
                seen.append(f(X, w))
    return seen, w


def nested(wrap):
    def fn(x, w):
        with region():
            a = x @ w
            interrupted()
            change(w)
            with region():
                b = x @ w
                interrupted()
                change(w)
            with torch.autocast("cpu", enabled=False):
                c = x @ w
                interrupted()
            with region(cache_enabled=False):
                d = x @ w
            return a, b, c, d, x @ w

    w, f = weight(), wrap(fn)
    return [f(X, w) for _ in range(3)], w


def left_and_entered_again(wrap):
    def fn(x, w):
        with region():
            a = x @ w
            interrupted()
            change(w)
            b = x @ w
        change(w)
        with region():
            c = x @ w
            interrupted()
            change(w)
            return a, b, c, x @ w

    w, f = weight(), wrap(fn)
    return [f(X, w) for _ in range(3)], w


def modes_inside(wrap):
    def fn(x, w):
        with region():
            with torch.no_grad():
                a = x @ w
            interrupted()
            change(w)
            b = x @ w
            interrupted()
            change(w)
            with torch.no_grad():
                c = x @ w
            with torch.inference_mode():
                d = x @ w
            return a, b, c, d.clone(), x @ w

    w, f = weight(), wrap(fn)
    return [f(X, w) for _ in range(3)], w


def modes_around(wrap):
    w, f, seen = weight(), wrap(lambda x, w: x @ w), []
    for _ in range(3):
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with region():
                with mode():
                    seen.append(f(X, w).clone())
                change(w)
                seen.append(f(X, w))
                change(w)
                with mode():
                    seen.append(f(X, w).clone())
    return seen, w


def in_inference_mode(wrap):
    def fn(x, w):
        with region():
            a = x @ w
            change(w)
            return a, x @ w

    w, f, seen = weight(), wrap(fn), []
    for _ in range(3):
        with torch.inference_mode():
            seen += f(X, w)
    return [s.clone() for s in seen], w


def no_leaves(wrap):
    def fn(x, v):
        a = x @ v
        interrupted()
        change(v)
        return a, x @ v

    w, f, seen = weight(), wrap(fn), []
    for _ in range(3):
        with region():
            seen.append(f(X, w * 1))
        with region():
            seen.append(f(X, w.detach() * 1))
    return seen, w


def a_module(wrap):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape))
    w = net[0].weight
    f, seen = wrap(net), []
    for _ in range(3):
        with region():
            seen.append(f(X))
            change(w)
            seen.append(f(X))
        seen.append(f(X))
    return seen, w


def sizes_that_vary(wrap):
    w = weight()
    f, seen = wrap(lambda x, w: x @ w[:, :3] if x.shape[0] == 9 else x @ w), []
    for n in (2, 3, 4, 1, 0, 5):
        with region():
            seen.append(f(torch.ones(n, 3), w))
            change(w)
            seen.append(f(torch.ones(n + 1, 3), w))
    return seen, w


def left_open(wrap):
    def enter(x, w):
        block = region()
        block.__enter__()
        return block, x @ w

    w, f, seen = weight(), wrap(enter), []
    for _ in range(3):
        block, a = f(X, w)
        change(w)
        seen += [a, X @ w]
        block.__exit__(None, None, None)
    return seen, w


def no_leaves_in_one_graph(wrap):
    def fn(x, v):
        a = x @ v
        change(v)
        return a, x @ v

    w, f, seen = weight(), wrap(fn), []
    for _ in range(3):
        with region():
            seen.append(f(X, w * 1))
            seen.append(f(X, (w * 1)[:]))
            seen.append(f(X, (w.detach() * 1).requires_grad_()[:]))
    return seen, w


def frames_that_only_python_calls(wrap):
    w = weight()

    def key(x):
        return float((x @ w).sum())

    def fn(xs):
        first = sorted(xs, key=key)
        change(w)
        return [*sorted(xs, key=key), *first, xs[0] @ w]

    f, seen = wrap(fn), []
    for _ in range(3):
        with region():
            seen += f([X, -X])
            change(w)
            seen += f([X, -X])
    return seen, w


def other_memory(wrap):
    REGION.changes = True  # no count of writes tells
    w, f, seen = weight(), wrap(lambda x, w: (x @ w) * 2), []
    for _ in range(3):
        with region():
            seen.append(f(X, w))
            w.data = w.data + 1
            seen.append(f(X, w))
        with region():
            seen.append(f(X, w))
            w.data = torch.ones(3, 4)
            w.grad = None
            seen.append(f(X, w))
            w.data = weight().data
    return [s.detach() for s in seen], w


def cast_by_name(wrap):
    def fn(x, w):
        return x.bfloat16() @ w.to(torch.bfloat16)

    w, f, seen = weight(), wrap(fn), []
    for _ in range(3):
        with region():
            seen.append(f(X, w))
            change(w)
            seen += [f(X, w), X @ w]
    return seen, w


def whole_regions(wrap):
    def fn(x, w):
        with region():
            a = x @ w
        return a @ w.to(a.dtype)

    w, f, seen = weight(), wrap(fn), []
    for _ in range(3):
        seen.append(f(X, w))
        change(w)
    return seen, w


SCENARIOS = [
    value
    for value in list(globals().values())
    if getattr(value, "__code__", None) is not None and value.__code__.co_varnames[:1] == ("wrap",)
]
