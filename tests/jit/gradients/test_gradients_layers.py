"""Layers that the library computes as a whole, in training."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.jit.gradients.training import facts, leaf, same_training

RECURRENT = {
    "LSTM": lambda: nn.LSTM(6, 5),
    "LSTM, both ways": lambda: nn.LSTM(6, 5, bidirectional=True, batch_first=True),
    "LSTM, deep": lambda: nn.LSTM(6, 5, num_layers=2, bias=False),
    "GRU": lambda: nn.GRU(6, 5, num_layers=2),
    "RNN": lambda: nn.RNN(6, 5, nonlinearity="relu"),
}


@pytest.mark.parametrize("whole_step", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent(name, whole_step):
    def program(jit):
        model = RECURRENT[name]()

        def step(x):
            out, state = model(x)
            loss = out.square().sum()
            loss.backward()
            return out.detach(), loss.detach()

        if whole_step:
            step = jit(step)
        else:
            jit(model)
        seen = []
        for _ in range(3):
            x = leaf(4, 3, 6)
            seen.append((step(x), facts(x), [p.grad.clone() for p in model.parameters()]))
        with torch.no_grad():
            seen.append(model(torch.randn(4, 3, 6))[0])
        return seen

    same_training(program)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_are_one_graph(name, twice, kept):
    def program(jit):
        model = RECURRENT[name]()
        f = jit(lambda x: model(x * 2)[0] * 3)
        for _ in range(2):
            x = leaf(4, 3, 6)
            loss = f(x).square().sum()
            if twice:
                given = [x, *model.parameters()]
                first = torch.autograd.grad(loss, given, create_graph=True)
                loss = sum(g.square().sum() for g in first)
            if kept:
                loss.backward(retain_graph=True)
            loss.backward()
        return facts(x, loss), [p.grad for p in model.parameters()]

    same_training(program, graphs=None if twice else 1)


def test_dropout_between_recurrent_layers():
    def program(jit):
        model = nn.LSTM(6, 5, num_layers=3, dropout=0.5)
        jit(model)
        torch.manual_seed(0)
        x = leaf(4, 3, 6)
        out, state = model(x)
        out.square().sum().backward()
        return facts(x, out), state, [p.grad for p in model.parameters()], torch.rand(2)

    same_training(program, graphs=1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_of_embeddings(mode, padding):
    """What they keep for the backward pass differs by all of this."""

    def program(jit):
        def bags(weight, indices, offsets):
            return nn.functional.embedding_bag(
                indices, weight, offsets, mode=mode, padding_idx=padding
            )

        bags, weight = jit(bags), leaf(11, 5)
        for _ in range(2):
            result = bags(weight, torch.arange(8) % 5, torch.tensor([0, 3, 3]))
            result.square().sum().backward()
        return facts(weight, result)

    same_training(program)


def test_hard_sigmoid_in_double_precision():
    """Its derivative is eager's, which is one sixth in single precision."""

    def program(jit):
        f = jit(lambda x: F.hardsigmoid(x) * 3)
        x = torch.linspace(-4, 4, 33, dtype=torch.float64, requires_grad=True)
        f(x).sum().backward()
        return x.grad

    same_training(program, graphs=1, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float64), (torch.float16, torch.bfloat16)]
)
@pytest.mark.parametrize("first", [False, True])
def test_cosine_similarity_of_a_number_of_another_dtype(dtypes, first):
    """It takes part as a tensor of its own dtype, once it is expanded."""

    def program(jit):
        several, one = torch.ones(1, 2, dtype=dtypes[0]), leaf(dtype=dtypes[1])
        given = (one, several) if first else (several, one)
        out = jit(lambda x, y: F.cosine_similarity(x, y))(*given)
        out.sum().backward()
        return out, one.grad

    same_training(program, graphs=1)


@pytest.mark.parametrize("near_zero", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_cosine_similarity(twice, near_zero):
    """Its gradient passes where norms are raised to eps."""

    def program(jit):
        f = jit(lambda x, y: F.cosine_similarity(x, y, dim=-1, eps=1e-6) * 2)
        seen = []
        for _ in range(2):
            x, y = leaf(3, 1, 5, dtype=torch.float64), leaf(4, 5, dtype=torch.float64)
            if near_zero:
                with torch.no_grad():
                    x[0], y[1] = 0, y[1] * 1e-8
            out = f(x, y)
            if twice:
                first = torch.autograd.grad(out.sum(), (x, y), create_graph=True)
                (first[0].sum() + first[1].square().sum()).backward()
            else:
                out.sum().backward()
            seen += [out, x.grad, y.grad]
        return seen

    same_training(program, graphs=None if twice else 1)


SPARSE = {
    "embedding": lambda w, i: F.embedding(i, w, sparse=True),
    "embedding_bag": lambda w, i: F.embedding_bag(i[None], w, mode="sum", sparse=True),
    "gather": lambda w, i: torch.gather(w, 0, i[:, None], sparse_grad=True),
}


@pytest.mark.parametrize("whole_step", [False, True])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_gradients(name, whole_step):
    def program(jit):
        w, scale = leaf(6, 3), leaf(3)

        def loss(i):
            made = (SPARSE[name](w, i) * (scale + 1)).square().sum()
            if whole_step:
                made.backward()
            return made

        loss, seen = jit(loss), []
        for k in range(3):
            made = loss(torch.tensor([1, 2, k]))
            if not whole_step:
                made.backward()
            seen.append((made.detach(), w.grad.is_sparse, w.grad.to_dense(), scale.grad.clone()))
            seen.append(w.grad.is_coalesced())
        with torch.no_grad():
            seen.append(loss(torch.tensor([0, 5])) if not whole_step else None)
        return seen

    same_training(program)
