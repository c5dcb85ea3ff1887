"""One model tried: built, jitted with fullgraph=True, called, compared with the plain model."""

from __future__ import annotations

import copy
import time
import traceback
from dataclasses import dataclass
from typing import Any

import torch

import frameloom
from frameloom.compiler import compilers
from tests.zoo.compare import TOLERANCE, Disagreement, compare, copied
from tests.zoo.models import Model

__all__ = ["TOLERANCE", "Result", "try_model"]
SEEDS = (1, 2, 3)


@dataclass
class Result:
    """What came of it.  `state`: passed, failed, or unbuilt (the model could not be made or run plainly; not counted)."""

    key: str
    kind: str
    state: str = "unbuilt"
    reason: str = ""
    detail: str = ""
    entries: int = 0  # more than one where the first call changes the model, which then computes something else
    graphs: int = 0
    ops: int = 0
    parameters: int = 0
    capture: float = 0.0  # seconds
    first: float = 0.0  # seconds of the first call, all of capture and compile in it
    difference: float = 0.0


def try_model(model: Model, backend: str | None = None, gradients: bool = True) -> Result:
    """Never raises: what goes wrong is in the result."""
    result = Result(model.key, model.kind)
    try:
        torch.manual_seed(0)
        plain = model.build().eval()
        settle(plain)
        result.parameters = sum(p.numel() for p in plain.parameters())
        compiled = copy.deepcopy(plain)
        wanted = [call(plain, model.inputs(seed)) for seed in SEEDS]
    except Exception as error:
        result.reason = f"{type(error).__name__}: {first_line(error)}"
        result.detail = traceback.format_exc()
        return result
    result.state = "failed"
    try:
        frameloom.jit(compiled, fullgraph=True, backend=backend)
        jitted = compiled._compiled_call_impl.__func__
        explanation = compilers[jitted].explanation
        for seed, want in zip(SEEDS, wanted, strict=True):
            entries = len(jitted.entries)
            start = time.perf_counter()
            got = call(compiled, model.inputs(seed))
            result.first = result.first or time.perf_counter() - start
            result.difference = max(result.difference, compare(got, want))
        result.graphs = len(explanation.graphs)
        result.ops = explanation.n_ops
        result.capture = explanation.seconds.get("capture", 0.0)
        if explanation.plain or not explanation.graphs:
            raise Disagreement(f"runs plainly: {explanation.plain}")
        result.entries = entries
        if len(jitted.entries) != entries:
            raise Disagreement(f"the third call made entry {len(jitted.entries)}")
        if gradients:
            compare(
                call(compiled, model.inputs(1), grad=True), call(plain, model.inputs(1), grad=True)
            )
        result.state = "passed"
    except Exception as error:
        result.reason = (
            first_line(error)
            if isinstance(error, Disagreement)
            else f"{type(error).__name__}: {first_line(error)}"
        )
        result.detail = traceback.format_exc()
    return result


def call(module: Any, inputs: dict[str, Any], grad: bool = False) -> Any:
    torch.manual_seed(0)
    with torch.set_grad_enabled(grad):
        return module(**copied(inputs))


def settle(module: torch.nn.Module) -> None:
    """Give every parameter that its module leaves at zero or one some values, so that no layer is lost in the comparison."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if (
                parameter.is_floating_point()
                and parameter.numel() > 1
                and bool((parameter == parameter.flatten()[0]).all())
            ):
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " | ".join(lines[:3])[:300]
