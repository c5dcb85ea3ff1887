"""Random numbers: the same stream as in eager, also around breaks; generators break.

PYTEST_DONT_REWRITE
"""

import random

import torch
import torch.nn.functional as F

from tests.programs.program import X, program


@program()
def random_tensors(x):
    return (
        torch.rand(3),
        torch.randn(2, 2),
        torch.randint(0, 9, (4,)),
        torch.randperm(5),
        torch.rand_like(x),
        torch.randn_like(x),
        torch.normal(0.0, 1.0, (2,)),
        torch.bernoulli(torch.full((3,), 0.5)),
    )


@program()
def random_in_place(x):
    return (
        torch.empty(3).uniform_(),
        torch.empty(3).normal_(),
        torch.empty(2).exponential_(),
        torch.empty(4).bernoulli_(0.3),
        torch.empty(2).random_(5),
        torch.empty(2).log_normal_(),
        torch.empty(2).cauchy_(),
        torch.empty(2).geometric_(0.5),
    )


@program()
def dropout_twice(x):
    return (
        F.dropout(x, 0.5),
        F.dropout(x, 0.5),
        F.dropout2d(x.reshape(1, 3, 2, 2), 0.5),
        F.alpha_dropout(x, 0.2, training=True),
    )


@program(graphs=2, breaks="print")
def stream_goes_on_behind_a_break(x):
    a = torch.rand(2)
    print("between")
    return a, torch.rand(2), x + 1


@program()
def unused_random_numbers_are_drawn(x):
    torch.rand(3)
    return x + torch.rand(3, 4)


@program(graphs=2, breaks="library_call")
def seed_set_inside(x):
    y = x + torch.rand(3, 4)
    torch.manual_seed(3)
    return y, torch.rand(2)


@program(args=lambda: (X, torch.Generator().manual_seed(1)), graphs=1, breaks="unknown_call")
def generator_argument(x, g):
    return x + torch.rand(3, 4, generator=g)


@program(graphs=2, breaks="unknown_call attribute unknown_call unknown_call")
def generator_made_inside(x):
    y = x + 1
    g = torch.Generator().manual_seed(2)
    return y * torch.rand(4, generator=g)


@program(before=lambda: random.seed(4), graphs=1, breaks="unknown_call")
def python_random_numbers(x):
    y = x + 1
    n = random.random()
    return y * n


@program(before=lambda: random.seed(4), graphs=2, breaks="library_call")
def python_choice(x):
    y = x + 1
    n = random.choice([1, 2, 3])
    return y * n


@program()
def multinomial_and_sampling(x):
    p = x.softmax(-1)
    return torch.multinomial(p, 2), F.gumbel_softmax(x), torch.poisson(x.abs())


@program()
def initialisation(x):
    w = torch.empty(3, 4)
    torch.nn.init.xavier_uniform_(w)
    v = torch.nn.init.kaiming_normal_(torch.empty(3, 4))
    return w, v, torch.nn.init.ones_(torch.empty(2)), torch.nn.init.orthogonal_ is not None


@program(graphs=3, breaks="library_call library_call")
def stream_state_saved_and_restored(x):
    y = x + 1
    state = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(state)
    return y * 2, a, torch.rand(2)
