"""torch.distributions: probabilities, samples and what is checked of their arguments, as part of the graph."""

import pytest
import torch
import torch.distributions as D

import frameloom
from frameloom import jit
from tests.helpers import check


@pytest.fixture(autouse=True)
def checks_arguments(monkeypatch):
    """torch.compile, which other tests call, turns that off for the whole process."""
    monkeypatch.setattr(D.Distribution, "_validate_args", __debug__)


torch.manual_seed(0)
X, P, C = torch.randn(5, 3), torch.rand(5, 3) * 0.8 + 0.1, torch.randint(0, 3, (5,))
MADE = {
    "normal": lambda: (D.Normal(X, P), X * 2),
    "numbers": lambda: (D.Normal(0.0, 1.0), X),
    "bernoulli": lambda: (D.Bernoulli(P), (X > 0).float()),
    "bernoulli_logits": lambda: (D.Bernoulli(logits=X), (X > 0).float()),
    "categorical": lambda: (D.Categorical(logits=X), C),
    "categorical_probs": lambda: (D.Categorical(P), C),
    "one_hot": lambda: (D.OneHotCategorical(logits=X), torch.eye(3)[C]),
    "uniform": lambda: (D.Uniform(X, X + 2), X + 1),
    "laplace": lambda: (D.Laplace(X, P), X * 2),
    "exponential": lambda: (D.Exponential(P), P * 2),
    "gamma": lambda: (D.Gamma(P + 1, P), P),
    "beta": lambda: (D.Beta(P + 1, P + 2), P),
    "dirichlet": lambda: (D.Dirichlet(P + 1), P / P.sum(-1, keepdim=True)),
    "poisson": lambda: (D.Poisson(P * 4), C[:, None].float()),
    "geometric": lambda: (D.Geometric(P), C[:, None].float()),
    "gumbel": lambda: (D.Gumbel(X, P), X),
    "cauchy": lambda: (D.Cauchy(X, P), X),
    "half_normal": lambda: (D.HalfNormal(P), P),
    "student": lambda: (D.StudentT(P + 3, X, P), X),
    "log_normal": lambda: (D.LogNormal(X, P), P),
    "independent": lambda: (D.Independent(D.Normal(X, P), 1), X * 2),
    "multivariate": lambda: (D.MultivariateNormal(X, scale_tril=torch.eye(3) + P[0].diag()), X * 2),
    "mixture": lambda: (D.MixtureSameFamily(D.Categorical(P), D.Normal(X, P)), X[:, 0]),
    "transformed": lambda: (D.TransformedDistribution(D.Normal(X, P), [D.TanhTransform()]), X.tanh()),
    "relaxed": lambda: (D.RelaxedOneHotCategorical(torch.tensor(0.7), logits=X), P / P.sum(-1, keepdim=True)),
    "von_mises": lambda: (D.VonMises(X, P), X),
    "binomial": lambda: (D.Binomial(4, P), C[:, None].float()),
    "negative_binomial": lambda: (D.NegativeBinomial(4.0, P), C[:, None].float()),
    "weibull": lambda: (D.Weibull(P, P + 1), P),
    "kumaraswamy": lambda: (D.Kumaraswamy(P + 1, P), P),
}  # fmt: skip


WITHOUT_SAMPLES = {"beta", "dirichlet", "geometric", "von_mises", "binomial"}  # in one graph
# PyTorch 2.11 keeps inverses of transformations by weak references, which are made outside of graphs, and does not know the sizes of `_standard_gamma`.
BREAKS = {"geometric"}
SAMPLES_BREAK: set[str] = set()
if hasattr(D.transforms, "weakref"):
    BREAKS |= {"gumbel", "log_normal", "transformed", "relaxed", "weibull", "kumaraswamy"}
    SAMPLES_BREAK |= {"gamma", "gumbel", "negative_binomial", "student"}


@pytest.mark.parametrize("name", MADE)
def test_log_probabilities(name):
    def fn(made):
        distribution, value = made()
        return distribution.log_prob(value)

    check(fn, MADE[name], **({} if name in BREAKS else {"graphs": 1, "breaks": 0}))


@pytest.mark.parametrize("name", sorted(MADE.keys() - WITHOUT_SAMPLES))
def test_samples(name):
    counts = {} if name in SAMPLES_BREAK else {"graphs": 1, "breaks": 0}
    check(lambda made: made()[0].sample((2,)), MADE[name], **counts)


def test_divergence():
    def fn(mean, scale):
        return D.kl_divergence(D.Normal(mean, scale), D.Normal(0.0, 1.0)).sum()

    check(fn, X, P, graphs=1, breaks=0)


def test_a_batch_that_varies_makes_two_graphs():
    def loss(logits, actions, advantages):
        distribution = D.Categorical(logits=logits)
        gained = (distribution.log_prob(actions) * advantages).mean()
        return gained + 0.01 * distribution.entropy().mean()

    frameloom.reset()
    jitted = jit(loss)
    for n in (4, 5, 7, 9):
        logits = torch.randn(n, 3, requires_grad=True)
        rest = torch.randint(0, 3, (n,)), torch.randn(n)
        (want,), (got,) = (torch.autograd.grad(f(logits, *rest), logits) for f in (loss, jitted))
        torch.testing.assert_close(got, want)
    stats = frameloom.stats()
    assert (stats["graphs"], stats["breaks"]) == (2, 0)


def test_arguments_that_do_not_fit_raise_as_before():
    def fn(scale, value):
        return D.HalfNormal(scale).log_prob(value)

    jitted = jit(fn)
    wrong = -torch.ones(3)
    for _ in range(2):
        torch.testing.assert_close(jitted(P[0], P[1]), fn(P[0], P[1]))
        for args in ((wrong, P[1]), (P[0], wrong)):
            with pytest.raises(ValueError) as want:
                fn(*args)
            with pytest.raises(ValueError) as got:
                jitted(*args)
            assert str(got.value) == str(want.value)
