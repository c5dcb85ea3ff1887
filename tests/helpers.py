"""`check(fn, *args)`: a jitted call does what the plain call does.

Compared: value, dtype, strides, type, aliasing among inputs and outputs, mutation of inputs, exception, printed text, random
stream.  Arguments are cloned for each side (aliasing among them kept); modules are deep-copied.
"""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any

import torch
from torch.utils import _pytree as pytree

import frameloom


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
        where = f"call {call}"
        assert type(got.error) is type(want.error), (
            f"{where}: {got.error!r} instead of {want.error!r}"
        )
        if want.error is not None:
            assert str(got.error) == str(want.error), where
        assert got.printed == want.printed, where
        same(got.result, want.result, rtol, atol, where)
        same(got.arguments, want.arguments, rtol, atol, f"{where}, arguments after the call")
        assert aliasing(got) == aliasing(want), f"{where}: aliasing differs"
        assert torch.equal(got.random_state, want.random_state), f"{where}: random stream differs"
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
        from frameloom.compiler import compilers

        self.target = frameloom.jit(fn, **options)
        jitted = self.target
        if isinstance(jitted, torch.nn.Module):
            jitted = jitted._compiled_call_impl
        while hasattr(jitted, "__func__"):
            jitted = jitted.__func__
        self.explanation = compilers[jitted].explanation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)


class observe:
    """One call on copies of the arguments and everything that can be seen of it."""

    def __init__(self, fn: Any, args: Any, kwargs: Any) -> None:
        self.arguments = copy.deepcopy((args, kwargs))
        self.result = self.error = None
        torch.manual_seed(0)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), torch.no_grad():
            try:
                self.result = fn(*self.arguments[0], **self.arguments[1])
            except Exception as error:
                self.error = error
        self.printed = out.getvalue()
        self.random_state = torch.get_rng_state()


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def aliasing(seen: observe) -> list[tuple[int, int]]:
    """Which tensors among arguments and result are one object (first) or share memory (second), by their order."""
    found = tensors(seen.arguments) + tensors(seen.result)
    storages = [t.untyped_storage()._cdata for t in found]
    return [(next(j for j, u in enumerate(found) if u is t), storages.index(s))
            for t, s in zip(found, storages, strict=True)]  # fmt: skip


def same(got: Any, want: Any, rtol: float, atol: float, where: str) -> None:
    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    assert got_spec == want_spec, f"{where}: {got_spec} instead of {want_spec}"
    for g, w in zip(got_leaves, want_leaves, strict=True):
        assert type(g) is type(w), f"{where}: {type(g)} instead of {type(w)}"
        if isinstance(w, torch.Tensor):
            assert g.dtype == w.dtype and g.shape == w.shape, (
                f"{where}: {g.dtype}{g.shape} instead of {w.dtype}{w.shape}"
            )
            assert g.stride() == w.stride(), (
                f"{where}: strides {g.stride()} instead of {w.stride()}"
            )
            assert g.requires_grad == w.requires_grad and g.is_inference() == w.is_inference(), (
                where
            )
            if w.is_floating_point() or w.is_complex():
                torch.testing.assert_close(
                    g, w, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{where}: {m}"
                )
            else:
                assert torch.equal(g, w), f"{where}: {g} instead of {w}"
        elif isinstance(w, float):
            assert g == w or (g != g and w != w) or abs(g - w) <= atol + rtol * abs(w), (
                f"{where}: {g} instead of {w}"
            )
        elif isinstance(w, int | str | bytes | bool | type(None)):
            assert g == w, f"{where}: {g!r} instead of {w!r}"
