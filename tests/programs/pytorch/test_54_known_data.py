"""Data that Python asks for: known where it follows from no input, handed on behind the graph where nothing is done with it, assumed where PyTorch
only checks it.

PYTEST_DONT_REWRITE
"""

import pytest
import torch

from frameloom import jit
from tests.programs.program import X, program

SQUARE = X[:3, :3]
WEIGHTS = torch.tensor([1, 2, 3, 4])


@program()
def numbers_of_a_sequence(x):
    rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
    return x * rates[1], rates, float(torch.tensor(2.5)), int(torch.tensor([3]))


@program(args=(SQUARE,))
def elements_chosen_by_a_mask_of_sizes(x):
    mask = torch.ones(x.shape, dtype=torch.bool).triu(1)
    return x[mask], x[mask.nonzero(as_tuple=True)], torch.masked_select(x, mask), x.mT[mask]


@program(args=(SQUARE,))
def mask_like_an_input(x):
    ones = torch.ones_like(x).tril()
    return x[ones > 0] if ones.sum() > 5 else x


@program()
def combinations(x):
    return torch.combinations(x[0], 2), torch.combinations(x[0], 3, with_replacement=True)


@program()
def known_data_is_written_later(x):
    steps = torch.arange(4)
    first = steps[1].item()
    steps += 1
    return x * steps[1].item(), first


@program()
def data_of_an_input_in_known_data(x):
    steps = torch.zeros(4)
    steps[1] = x[0, 0]
    return x * steps[1].item()


@program(before=lambda: torch.manual_seed(0))
def random_data_is_not_known(x):
    return x * torch.rand(()).item()


log = []


@program(before=log.clear, state=lambda: list(log))
def numbers_handed_on(x):
    log.append(x.max().item())
    total = x.sum()
    return {"total": total.item(), "again": [float(total)]}, (x > 0).all().item(), (x.long()[0, 0]).item()  # fmt: skip


@program(args=(torch.complex(X, X),))
def complex_numbers_handed_on(x):
    return x.sum().item(), x.conj()[0, 0].item(), x + 1


@program(args=(torch.complex(X, X),), breaks="item", graphs=2)
def complex_numbers_compared(x):
    return x + 1 if x.sum().item() == 0 else x - 1


@program(calls=[(X, X.clone()), (X, X + 1), (X, X[:1]), (X, X.double())], graphs=3)
def comparisons_handed_on(x, y):
    return torch.equal(x + 1, y + 1), torch.equal(x.long(), x), torch.allclose(x * 1.0, x)


@program(graphs=2, breaks="graph_break")
def number_over_a_break(x):
    import frameloom

    n = (x + 1).sum().item()
    frameloom.graph_break()
    return x * 2, n


def comparison_is_asserted(x, y):
    assert torch.equal(x, y)
    assert torch.allclose(x, y, atol=1e-3), "far apart"
    return x + y


def test_comparisons_that_are_asserted():
    target = jit(comparison_is_asserted, fullgraph=True)
    assert torch.equal(target(X, X.clone()), X + X)
    with pytest.raises(AssertionError):
        target(X, X + 1)
    assert torch.equal(target(X, X.clone()), X + X)


@program(calls=[(X, WEIGHTS), (X, WEIGHTS - 3), (X, WEIGHTS * 0), (X, WEIGHTS)])
def weights_that_pytorch_checks(x, weights):
    return torch.cov(x, fweights=weights)


@program(calls=[(X, WEIGHTS), (X, WEIGHTS - 3), (X, WEIGHTS)])
def weights_checked_behind_a_write(x, weights):
    x.add_(1)
    return torch.cov(x, fweights=weights)


@program(args=(torch.randn(2, 9, 10, dtype=torch.complex64),))
def inverse_of_a_short_time_transform(x):
    return torch.istft(x, 16, window=torch.hann_window(16))


LOG_PROBABILITIES = torch.randn(12, 2, 5).log_softmax(-1)
TARGETS = torch.randint(1, 5, (2, 4))
LENGTHS = torch.tensor([12, 10]), torch.tensor([4, 3])


@program(args=(LOG_PROBABILITIES, TARGETS, *LENGTHS))
def connectionist_loss(x, targets, lengths, target_lengths):
    losses = torch.nn.functional.ctc_loss(x, targets, lengths, target_lengths, reduction="none")
    listed = torch.nn.functional.ctc_loss(x, targets, [12, 10], (4, 3), zero_infinity=True)
    return losses * 2, listed + 1, torch.ctc_loss(x, targets, lengths, target_lengths, 0, 2, True)


RANK_ONE = torch.ones(5, 3)


@program(calls=[(torch.randn(5, 3), torch.randn(5, 2)), (RANK_ONE, torch.randn(5, 2))])
def least_squares(a, b):
    return [torch.linalg.lstsq(a, b, driver=driver) for driver in ("gels", "gelsd")]


@program(args=(torch.randn(2, 3, 5), torch.randn(2, 3, 2)))
def least_squares_without_enough_equations(a, b):
    return torch.linalg.lstsq(a, b), torch.linalg.lstsq(a, b[..., 0], driver="gelss")


def number_of_a_loss(x):
    loss = (x * x).sum()
    return loss, loss.item(), loss.detach().item()


def test_the_number_of_a_loss_leaves_its_gradient():
    target = jit(number_of_a_loss, fullgraph=True)
    for _ in range(2):
        x = X.clone().requires_grad_()
        loss, first, second = target(x)
        loss.backward()
        assert first == second == loss.item() == (X * X).sum().item()
        assert torch.equal(x.grad, 2 * X)
