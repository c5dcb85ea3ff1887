"""`check(fn, *args)`: a jitted call does what the plain call does, through the whole compiler.

What is compared is in `observe.py`.  Arguments are copied for each side (aliasing among them kept); modules are deep-copied.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

import frameloom
from tests.observe import assert_same_call, observe, same


def check(
    fn: Any,
    *args: Any,
    graphs: int | None = None,
    breaks: int | None = None,
    kernels: int | None = None,
    calls: int = 2,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    **kwargs: Any,
) -> Any:
    """Run `fn` plainly and jitted, `calls` times each on fresh copies; returns the Explanation of the jitted side."""
    plain_fn, explanation = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn, None
    jitted = jit_for_test(fn)
    for call in range(calls):
        want = observe(plain_fn, args, kwargs)
        got = observe(jitted, args, kwargs)
        assert_same_call(got, want, f"call {call}", rtol, atol)
    explanation = jitted.explanation
    if graphs is not None:
        assert len(explanation.graphs) == graphs, f"{len(explanation.graphs)} graphs\n{explanation}"
    if breaks is not None:
        assert len(explanation.breaks) == breaks, f"{len(explanation.breaks)} breaks\n{explanation}"
    if kernels is not None:
        assert len(explanation.kernels) == kernels, (
            f"{len(explanation.kernels)} kernels\n{explanation}"
        )
    return explanation


class jit_for_test:
    """A jitted function together with its Explanation."""

    def __init__(self, fn: Any, **options: Any) -> None:
        self.target = frameloom.jit(fn, **options)
        jitted = self.target
        if isinstance(jitted, torch.nn.Module):
            jitted = jitted._compiled_call_impl
        while hasattr(jitted, "__func__"):
            jitted = jitted.__func__
        self.explanation = jitted.on_miss.explanation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)


__all__ = ["assert_same_call", "check", "jit_for_test", "observe", "same"]
