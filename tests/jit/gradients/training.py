"""`same_training(program)`: a program that trains sees the same with its functions jitted as without.

`program(jit)` makes everything it needs, marks functions with `jit`, and returns whatever is to be compared; an exception that it
raises is part of that.  It calls each jitted function as often as it likes: the first call compiles, the second is compiled.
"""

from __future__ import annotations

import re
from typing import Any

import torch

import frameloom
from tests.observe import same


def same_training(
    program: Any,
    graphs: int | None = None,
    plain: int | None = 0,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    want = _outcome(program, lambda fn: fn)
    frameloom.reset()
    got = _outcome(program, frameloom.jit)
    stats = frameloom.stats()
    same(got, want, rtol, atol, "[result, error, random state]")
    if plain is not None:
        assert stats["plain"] == plain, stats
    if graphs is not None:
        assert stats["graphs"] == graphs, stats


def _outcome(program: Any, jit: Any) -> list[Any]:
    torch.manual_seed(0)
    result = error = None
    try:
        result = program(jit)
    except Exception as raised:
        error = type(raised), wording(raised)
    return [result, error, torch.get_rng_state()]


def wording(error: BaseException) -> str:
    """Its text without the names of autograd's nodes, which are those of the compiled graphs."""
    return re.sub(r" which is output \d+ of [\w:.]+,", "", str(error))


def caught(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """The exception that a call raises, or its result."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return type(error), wording(error)


def facts(*tensors: Any) -> list[Any]:
    """What autograd says about tensors."""
    return [
        t if t is None else (t, t.requires_grad, t.grad_fn is None, t.is_leaf, t.grad)
        for t in tensors
    ]


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)
