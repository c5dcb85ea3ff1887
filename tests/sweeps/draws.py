"""Ops that draw random numbers, on tensors of all layouts: the same numbers, places and state of the generator behind them.

In what order, and how many numbers eager draws hangs on layout, dtype and size: from 16 elements on, `normal_` of a contiguous tensor has a vectorised path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from frameloom import jit
from tests.fuzz.interpret import interpreted

Call = Callable[[torch.Tensor], Any]
# Of dtypes, with sizes that vary or not; all were looked at once.
KINDS = ((torch.float32, False), (torch.float32, True), (torch.float16, False), (torch.bool, False))
SHAPES = ((0, 3), (3, 3), (4, 4, 3), (17,), (2, 1, 4))
LAYOUTS: dict[str, Call] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1) if x.dim() else x,
    "of the last": lambda x: x.movedim(1, -1) if x.dim() > 1 else x,
    "with gaps, transposed": lambda x: torch.stack((x, x), -1)[..., 0].transpose(0, -1) if x.dim() else x,
    "expanded": lambda x: x[None].expand(3, *x.shape),
}  # fmt: skip


def _rates(x: torch.Tensor) -> torch.Tensor:
    """Of another layout than x."""
    count = torch.arange(x.numel(), dtype=torch.float32) / max(x.numel(), 1)
    return count.reshape(x.shape[::-1]).permute(*reversed(range(x.dim()))) if x.dim() else count[0]


IN_PLACE: dict[str, Call] = {
    "bernoulli_": lambda x: x.bernoulli_(),
    "bernoulli_ 0.3": lambda x: x.bernoulli_(0.3),
    "bernoulli_ 0": lambda x: x.bernoulli_(0),
    "bernoulli_ 1": lambda x: x.bernoulli_(1.0),
    "bernoulli_ rates": lambda x: x.bernoulli_(_rates(x)),
    "bernoulli_ doubles": lambda x: x.bernoulli_(_rates(x).double()),
    "bernoulli_ one rate": lambda x: x.bernoulli_(torch.tensor(0.4)),
    "uniform_": lambda x: x.uniform_(),
    "uniform_ -1 3": lambda x: x.uniform_(-1, 3),
    "normal_": lambda x: x.normal_(),
    "normal_ 2 0.5": lambda x: x.normal_(2, 0.5),
    "random_": lambda x: x.random_(),
    "random_ 7": lambda x: x.random_(7),
    "random_ -3 9": lambda x: x.random_(-3, 9),
    "random_ 2 ** 10": lambda x: x.random_(2**10),
    "exponential_": lambda x: x.exponential_(),
    "exponential_ 3": lambda x: x.exponential_(3.0),
    "geometric_": lambda x: x.geometric_(0.4),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "dropout in place": lambda x: F.dropout(x, 0.4, inplace=True),
    "alpha_dropout in place": lambda x: F.alpha_dropout(x, 0.4, True, True),
    "feature_dropout in place": lambda x: torch.feature_dropout_(x, 0.4, True),
    "rrelu in place": lambda x: F.rrelu(x, 0.1, 0.4, True, True),
    "trunc_normal_": lambda x: torch.nn.init.trunc_normal_(x),
    "xavier_uniform_": lambda x: torch.nn.init.xavier_uniform_(x),
    "orthogonal_": lambda x: torch.nn.init.orthogonal_(x),
    "sparse_": lambda x: torch.nn.init.sparse_(x, 0.5),
}
NEW: dict[str, Call] = {
    "bernoulli": lambda x: torch.bernoulli(x),
    "bernoulli 0.3": lambda x: torch.bernoulli(x, 0.3),
    "rand_like": lambda x: torch.rand_like(x),
    "rand_like of doubles": lambda x: torch.rand_like(x, dtype=torch.float64),
    "contiguous rand_like": lambda x: torch.rand_like(x, memory_format=torch.contiguous_format),
    "randn_like": lambda x: torch.randn_like(x),
    "randn_like of floats": lambda x: torch.randn_like(x, dtype=torch.float32),
    "randint_like": lambda x: torch.randint_like(x, 9),
    "randint_like -4 2": lambda x: torch.randint_like(x, -4, 2),
    "rand": lambda x: torch.rand(x.shape, dtype=x.dtype),
    "randn": lambda x: torch.randn(x.shape, dtype=x.dtype),
    "randint": lambda x: torch.randint(7, x.shape, dtype=x.dtype),
    "randperm": lambda x: torch.randperm(x.numel(), dtype=x.dtype),
    "normal of means": lambda x: torch.normal(x, 0.5),
    "normal of deviations": lambda x: torch.normal(0.5, x),
    "normal of both": lambda x: torch.normal(x, x),
    "normal of shape": lambda x: torch.normal(1.0, 2.0, x.shape, dtype=x.dtype),
    "poisson": lambda x: torch.poisson(x),
    "binomial": lambda x: torch.binomial(x * 5, x),
    "multinomial": lambda x: torch.multinomial(x, 1),
    "multinomial 4": lambda x: torch.multinomial(x, 4, True),
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout 0": lambda x: F.dropout(x, 0.0),
    "dropout 1": lambda x: F.dropout(x, 1.0),
    "dropout1d": lambda x: F.dropout1d(x, 0.4),
    "dropout2d": lambda x: F.dropout2d(x, 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.4, True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.4, True),
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.4, True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "hard gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(x, 2, (1, 2)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
}  # fmt: skip


def _made(dtype: torch.dtype, shape: Any, lay_out: Call) -> torch.Tensor:
    if dtype is torch.bool:
        return lay_out(torch.ones(shape, dtype=dtype))
    return lay_out(torch.full(shape, 0.5).to(dtype) + (not dtype.is_floating_point))


def _run(fn: Call, make: Callable[[], torch.Tensor]) -> Any:
    """What is computed, what is written, and the state of the generator."""
    x = make()
    torch.manual_seed(5)
    try:
        result = fn(x)
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    return [result if result is not x else None, x, torch.get_rng_state()]


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_alike, a, b))
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
        return False
    return torch.equal(a, b) or torch.allclose(a, b, 1e-5, 1e-6, equal_nan=True)


def sweep_draws(kinds: Any = KINDS) -> Iterator[str]:
    with interpreted(draws=True):
        for dtype, dynamic in kinds:
            for name, fn in (IN_PLACE | NEW).items():
                for layout, lay_out in LAYOUTS.items():
                    jitted = jit(fn, dynamic=dynamic)
                    for shape in SHAPES:
                        make = functools.partial(_made, dtype, shape, lay_out)
                        got, want = _run(jitted, make), _run(fn, make)
                        if not _alike(got, want):
                            called = f"{name} of {dtype} {list(shape)} {layout}"
                            yield f"{called}{' dynamic' * dynamic}: {_told(got, want)}"


def _told(got: Any, want: Any) -> str:
    if isinstance(got, tuple) or isinstance(want, tuple):
        return f"{got if isinstance(got, tuple) else 'done'}, eager {want if isinstance(want, tuple) else 'done'}"
    parts = ("result", "written", "generator")
    return ", ".join(p for p, a, b in zip(parts, got, want, strict=True) if not _alike(a, b))
