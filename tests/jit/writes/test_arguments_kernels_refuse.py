"""Arguments that kernels alone refuse: the exception comes, whether somebody uses the result or not."""

import pytest
import torch
import torch.nn.functional as F

import frameloom

X, B = torch.arange(20.0).view(4, 5), torch.tensor([1.0, 3.0, 7.0])
Y, W = torch.tensor([0, 1, 2, 3]), torch.ones(5, dtype=torch.float64)
S, Z = torch.ones(3), torch.zeros(3, dtype=torch.int32)
CALLS = {
    "side": lambda: torch.searchsorted(B, X, side="Left"),
    "sides": lambda: torch.searchsorted(B, X, side="left", right=True),
    "dimension": lambda: torch.unique(X, dim=3),
    "dtype of sums": lambda: X.clone().cumsum_(0, dtype=torch.float64),
    "dtype of products": lambda: X.clone().cumprod_(0, dtype=torch.float64),
    "norm of ints": lambda: X.norm(dtype=torch.int32),
    "narrow norm": lambda: torch.linalg.vector_norm(X, dtype=torch.half),
    "narrow norm along": lambda: torch.norm(X.double(), 2, 0, dtype=torch.float32),
    "full_like": lambda: torch.full_like(X, 300, dtype=torch.uint8),
    "new_full": lambda: X.new_full((2,), 1e6, dtype=torch.half),
    "weights of classes": lambda: F.nll_loss(X, Y, weight=W),
    "weights of logits": lambda: F.cross_entropy(X, Y, weight=W, label_smoothing=0.1),
    "classes": lambda: F.one_hot(Y, True),
    "requires_grad": lambda: X.clone().requires_grad_(None),
    "memory": lambda: torch.zeros(2, pin_memory=True),
    "lists of bools": lambda: torch._foreach_abs([X > 0]),
    "lists of ints": lambda: torch._foreach_frac([Y]),
    "differences of bools": lambda: torch._foreach_sub([X, X > 0], 2),
    "lists of small ints": lambda: torch._foreach_lerp([Y.char()], [Y.char()], 0.5),
    "margins of ints": lambda: F.multi_margin_loss(X.long(), Y),
    "margins of halves": lambda: F.multi_margin_loss(X.half(), Y),
    "combinations": lambda: torch.combinations(Y.to(torch.uint16)),
    "padding": lambda: F.unfold(X.view(1, 1, 4, 5), 2, padding=-1),
    "zero point": lambda: torch.fake_quantize_per_tensor_affine(X, 0.1, 300, 0, 255),
    "range": lambda: torch.fake_quantize_per_tensor_affine(X, 0.1, 0, 255, 0),
    "channels": lambda: torch.fake_quantize_per_channel_affine(X, S, Z, 0, 0, 255),
    "zero points": lambda: torch.fake_quantize_per_channel_affine(
        X[:3], S, torch.full((3,), 300, dtype=torch.int32), 0, 0, 255
    ),
}


WITH_ACCELERATORS = ("memory",)


@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_refused(name, is_used):
    if name in WITH_ACCELERATORS and torch.accelerator.is_available():
        pytest.skip("there is one")

    def fn(x, seen):
        seen.append(x.sum())
        y = CALLS[name]()
        seen.append(y if is_used else x)

    found = []
    for f in (fn, frameloom.jit(fn)):
        seen = []
        with pytest.raises((RuntimeError, IndexError, TypeError)) as raised:
            f(X, seen)
        found.append((type(raised.value), str(raised.value), len(seen)))
    assert found[0] == found[1]


DRAWS = ("torch.bernoulli(z)", "torch.poisson(z)", "torch.multinomial(z, 2)", "torch.normal(0.0, z)", "z.exponential_()", "z.geometric_(0.5)",
         "z.random_(0, 3)", "torch.rand_like(z)", "torch.binomial(z, z)")  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int32, torch.float16])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_random_numbers_that_are_refused_behind_a_write(device, draw, dtype):
    """What a generator has given on a GPU, or has given itself, is not put back: the call cannot start anew."""
    source = f"def fn(x, z):\n    x.fill_(1)\n    made = {draw}\n    x.add_(1)\n    return made"
    namespace = {"torch": torch}
    exec(source, namespace)
    found = []
    for f in (namespace["fn"], frameloom.jit(namespace["fn"])):
        torch.manual_seed(0)
        x = torch.zeros(3, device=device)
        z = torch.ones(5, 3, device=device).to(dtype)
        try:
            made = f(x, z)
            told = made.dtype, made.tolist()
        except Exception as error:
            told = type(error), str(error)
        found.append((told, x.tolist(), x._version, z.tolist()))
    assert repr(found[0]) == repr(found[1])
