"""Choices that random numbers decide in Python, and masks that NumPy draws: part of one graph where that can be."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import frameloom
from tests.helpers import check
from tests.jit.gradients.training import leaf, same_training


def layers_left_out(probability, count):
    def program(jit):
        layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(count)])

        @jit
        def f(x):
            for layer in layers:
                skip = layer.training and torch.rand([]) < probability
                if not skip:
                    x = F.dropout(layer(x), 0.2)
                if skip:
                    x = x + 1
            return x * 2

        seen = []
        for _ in range(30):
            x = leaf(4, 6)
            layers.zero_grad()
            y = f(x)
            y.square().sum().backward()
            seen += [y, x.grad, [p.grad for p in layers.parameters()], torch.rand(1)]
        return seen

    return program


def test_layers_that_are_left_out_now_and_then():
    same_training(layers_left_out(0.1, 2), graphs=1)


def test_layers_that_are_left_out_often():
    same_training(layers_left_out(0.5, 2), graphs=None)
    assert frameloom.stats()["breaks"] > 0


def test_many_layers_are_not_likely_all_there():
    same_training(layers_left_out(0.1, 6), graphs=None)
    assert frameloom.stats()["breaks"] > 0


def test_what_a_choice_by_chance_changes_before_and_behind():
    """A call that starts anew has written nothing."""

    def program(jit):
        first, second, count = nn.BatchNorm1d(6), nn.BatchNorm1d(6), torch.zeros(8)

        @jit
        def f(x, at):
            count[at] += 1
            x = F.dropout(first(x), 0.2)
            if torch.rand([]) < 0.1:
                return x
            return second(x[:, at]) * 2

        seen = []
        for k in range(30):
            x = leaf(4, 6)
            y = f(x, torch.tensor([k % 6, 1, 2, 3, 4, 5]))
            y.sum().backward()
            seen += [y, x.grad, count.clone(), torch.rand(1), count._version]
        return seen, dict(first.named_buffers()), dict(second.named_buffers())

    same_training(program, graphs=1)
    assert not frameloom.stats()["breaks"]


def test_what_raises_behind_a_choice_by_chance():
    """Only where the program comes to it."""

    def program(jit):
        norm = nn.BatchNorm1d(6)

        @jit
        def f(x, at):
            x = norm(x)
            if torch.rand([]) < 0.2:
                return x
            return x[:, at] * 2

        seen = []
        for k in range(30):
            try:
                seen.append(f(leaf(4, 6), torch.tensor([0, 7 if k % 3 else 5])))
            except IndexError:
                seen.append("raised")
            seen.append(torch.rand(1))
        return seen

    same_training(program, graphs=1)


def test_a_mask_drawn_by_numpy_beside_what_is_written():
    def program(jit):
        np.random.seed(0)
        norm, mark = nn.BatchNorm1d(6), nn.Parameter(torch.randn(6))

        @jit
        def f(x, at):
            mask = spans((2, 8), 0.4, 2, least=1)
            x = x + 1
            x[torch.tensor(mask)] = mark
            return norm(x.view(16, 6))[:, at] * 2

        seen = []
        for k in range(9):
            try:
                y = f(torch.randn(2, 8, 6), torch.tensor([7 if k % 3 == 2 else 5]))
                (y * torch.randn(16, 1)).sum().backward()
                seen += [y, mark.grad.clone()]
            except IndexError:
                seen.append("raised")
            seen.append(np.random.rand())
        return seen

    same_training(program, graphs=1)


def spans(shape, share, length, least=0, raises=False):
    """A mask of spans, as models of speech draw it."""
    rows, n = shape
    if length > n:
        raise ValueError(f"spans of {length} in {n}")
    more = np.random.rand(1).item()

    def count(k):
        return max(int(share * k / length + more), least)

    mask = np.zeros((rows, n), dtype=bool)
    starts = [
        np.random.choice(np.arange(n - (length - 1)), count(n), replace=False) for _ in range(rows)
    ]
    starts = np.array(starts)
    if raises and starts.max() > 4:
        raise ValueError("late")
    at = np.broadcast_to(starts[:, :, None], (*starts.shape, length))
    at = (at + np.arange(length)[None, None]).reshape(rows, -1)
    np.put_along_axis(mask, at, 1, -1)
    return mask


def masked(draw, after=lambda mask: None):
    def program(jit):
        np.random.seed(0)
        layer, mark = nn.Linear(5, 6), nn.Parameter(torch.randn(6))

        @jit
        def f(x):
            h = layer(x)
            mask = draw(x)
            after(mask)
            h[torch.tensor(mask, device=h.device, dtype=torch.bool)] = mark.to(h.dtype)
            return F.dropout(h, 0.3) * 2

        seen = []
        for _ in range(6):
            x = leaf(2, 8, 5)
            try:
                y = f(x)
            except ValueError as error:
                seen.append(str(error))
            else:
                y.square().sum().backward()
                seen += [y, x.grad, mark.grad.clone()]
            seen.append(np.random.rand())
        return seen

    return program


def test_masks_drawn_by_numpy():
    same_training(masked(lambda x: spans((2, 8), 0.4, 2, least=1)), graphs=1)


def test_two_masks_drawn_by_numpy():
    def draw(x):
        return spans(x.shape[:2], 0.5, 2, least=1) | spans(x.shape[:2], 0.2, 1, least=1)

    same_training(masked(draw), graphs=None)


def test_drawing_a_mask_raises_now_and_then():
    same_training(masked(lambda x: spans((2, 8), 0.4, 2, 1, raises=True)), graphs=None)


def test_drawing_a_mask_always_raises():
    same_training(masked(lambda x: spans((2, 8), 0.4, 20)), graphs=None, plain=None)


def test_a_mask_drawn_by_numpy_is_looked_at():
    same_training(masked(lambda x: spans((2, 8), 0.4, 2, 1), after=lambda m: m.sum()), graphs=None)


def test_a_mask_and_numbers_drawn_by_numpy():
    """In the order of the program."""

    def draw(x):
        before = np.random.rand()
        mask = spans((2, 8), 0.4, 2, 1)
        return mask if before < 2 else np.random.rand()

    same_training(masked(draw), graphs=None)


def drawing_of_another_size(n):
    return np.zeros((2, int(np.random.rand() * n) + 1))


def test_arrays_of_a_size_that_is_drawn():
    def program(jit):
        np.random.seed(0)
        f = jit(lambda x: torch.tensor(drawing_of_another_size(3)).sum() + x)
        return [(f(torch.ones(2)), np.random.rand()) for _ in range(8)]

    same_training(program, graphs=None)


seen = []


def drawing_that_is_noted(n):
    seen.append(n)
    return np.random.rand(n)


def test_functions_that_do_more_than_draw():
    def program(jit):
        np.random.seed(0)
        seen.clear()
        f = jit(lambda x: x * 2 + torch.tensor(drawing_that_is_noted(3)))
        return [f(torch.ones(3)) for _ in range(3)], list(seen)

    same_training(program, graphs=None)


def only_drawing(n):
    return np.random.rand(n)


def test_numpy_is_another_one_later():
    """What the function's names stand for is guarded."""

    def f(x):
        return x + torch.tensor(only_drawing(3))

    def program(jit):
        np.random.seed(0)
        g, before, found = jit(f), np.random.rand, []
        for changed in (False, True, False):
            if changed:
                np.random.rand = np.ones
            try:
                found += [g(torch.ones(3)), g(torch.ones(3))]
            finally:
                np.random.rand = before
        return found

    same_training(program, graphs=None)


def test_python_draws_between():
    def f(x):
        a = random.random()
        y = x + torch.tensor(only_drawing(3))
        return y, a, np.random.rand()

    def program(jit):
        np.random.seed(0)
        random.seed(0)
        g = jit(f)
        return [g(torch.ones(3)) for _ in range(3)]

    same_training(program, graphs=None)


def test_values_given_by_masks():
    """`x[mask] = value`: of a number of ones that nobody needs to know."""
    value = torch.randn(6)

    def given(change):
        def program(jit):
            layer = nn.Linear(5, 6)

            @jit
            def f(x, mask):
                return change(layer(x), mask) * 2

            found = []
            for _ in range(3):
                x, mask = leaf(2, 4, 5), torch.rand(2, 4) > 0.5
                y = f(x, mask)
                y.square().sum().backward()
                found += [y, x.grad, layer.weight.grad.clone()]
            return found

        return program

    def write(h, mask, other):
        h[mask] = other
        return h

    same_training(given(lambda h, m: write(h, m, value)), graphs=1)
    same_training(given(lambda h, m: write(h, m, value[:1])), graphs=1)
    same_training(given(lambda h, m: write(h, m, h.sum((0, 1)))), graphs=1)
    same_training(given(lambda h, m: write(h, m[:, 0], value)), graphs=1)
    same_training(given(lambda h, m: write(h, m, h[0, 0])), graphs=None)
    same_training(given(lambda h, m: write(h, m, value.double())), graphs=None)
    same_training(given(lambda h, m: write(h, m, value.expand(1, 6))), graphs=1)
    same_training(given(lambda h, m: write(h, (m, slice(None)), value)), graphs=1)
    same_training(given(lambda h, m: write(h, (slice(None), m[0]), value)), graphs=1)
    same_training(given(lambda h, m: write(h, (1, m[1], 2), h.detach()[0, 0, 0])), graphs=1)
    same_training(given(lambda h, m: torch.index_put(h, (m,), value)), graphs=1)
    same_training(given(lambda h, m: h.index_put_((m,), value, accumulate=True)), graphs=1)
    same_training(given(lambda h, m: write(h, m[:, :3], value.expand(1, 6))), graphs=None)
    check(lambda h, m: write(h + 1, m, value), torch.randn(2, 4, 6), torch.rand(2, 4) > 0.5)
