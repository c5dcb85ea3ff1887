"""Compiles versions of a graph with symbolic sizes for sizes that many calls have.  A background thread does
this; until then, the program runs the general version.

The native plan counts the calls (runtime/plan/hot_shapes.h).  If anything fails here, the general version stays
in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter  # by name: the program may replace the functions of `time`
from typing import Any

import torch

from frameloom.backend.background import background, ends
from frameloom.capture import _capture
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.capture.recording.static_graph import captured_at_sizes, sizes_of
from frameloom.compile_lock import compile_lock
from frameloom.config import config
from frameloom.debug import Trail, log
from frameloom.ir.symbolic.expr import Symbol
from frameloom.options import Options

Compile = Callable[[CapturedGraph, Options, Trail], Any]


class Ended(Exception):
    """Python is about to exit."""


class _Trail(Trail):
    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if ends():
            raise Ended
        with super().stage(name):
            yield


@dataclass(frozen=True)
class Steady:
    """Called by a plan with values of `symbols` that many calls have; compiles a version for them."""

    captured: CapturedGraph
    symbols: tuple[Symbol, ...]
    options: Options
    name: str
    compile: Compile

    def __call__(self, plan: Any, values: tuple[int, ...]) -> None:
        # Empty tensors gain nothing.  Deterministic mode requires the same digits every time, hence one
        # version.
        if 0 not in values and not torch.are_deterministic_algorithms_enabled():
            background.add(partial(self._build, plan, values))

    def _build(self, plan: Any, values: tuple[int, ...]) -> None:
        sizes = ", ".join(f"{s!r}={n}" for s, n in zip(self.symbols, values, strict=True))
        trail = _Trail(f"{self.name} at {sizes}")
        start = perf_counter()
        suspended = _capture.hook_suspend(True)
        try:
            with compile_lock():
                known = dict(zip(self.symbols, values, strict=True))
                own = self.compile(captured_at_sizes(self.captured, known), self.options, trail)
            plan.specialize(values, own)
            log(
                "sizes",
                f"{trail.name}: has a version of its own, built in {perf_counter() - start:.2f} s",
            )
        except Ended:
            pass
        except Exception as error:
            if config.verify:
                raise
            log("sizes", f"{trail.name}: stays with the general version: {error!r}")
        finally:
            _capture.hook_suspend(suspended)
            trail.close()


def steady(captured: CapturedGraph, options: Options, name: str, compile: Compile) -> Steady | None:
    """Returns the `Steady` for the plan of a graph; None if it gets no versions for fixed sizes."""
    is_part = captured.owned or captured.visible is not None  # a forward or backward half
    if not config.background or is_part or options.replay or options.backend is not None:
        return None
    symbols = sizes_of(captured)
    if not symbols:
        return None
    # Only dtype and inference mode of the examples are read later, so the program's tensors are not kept
    # alive.
    kinds = tuple(_empty_like(e) if isinstance(e, torch.Tensor) else e for e in captured.examples)
    return Steady(replace(captured, examples=kinds), symbols, options, name, compile)


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(tensor.is_inference()):
        return torch.empty(0, dtype=tensor.dtype, device="meta")
