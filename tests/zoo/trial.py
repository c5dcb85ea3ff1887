"""One model tried: built, jitted with fullgraph=True, called, compared with the plain model."""

from __future__ import annotations

import copy
import math
import random
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch

import frameloom
from tests.zoo.compare import TOLERANCE, Disagreement, compare, copied, parts
from tests.zoo.models import Model

__all__ = ["TOLERANCE", "Result", "train_model", "try_model"]
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
    backward: int = 0  # compiled backward passes
    whole: bool = False  # whether training takes one graph forward and one backward
    breaks: tuple[str, ...] = ()
    ops: int = 0
    parameters: int = 0
    capture: float = 0.0  # seconds
    first: float = 0.0  # seconds of the first call, all of capture and compile in it
    difference: float = 0.0


def explain_failure(result: Result, error: Exception) -> None:
    """What is caught at present, told in `result`."""
    told = isinstance(error, Disagreement)
    result.reason = first_line(error) if told else f"{type(error).__name__}: {first_line(error)}"
    result.detail = traceback.format_exc()


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
        explain_failure(result, error)
        return result
    result.state = "failed"
    try:
        frameloom.jit(compiled, fullgraph=True, backend=backend)
        jitted = compiled._compiled_call_impl.__func__
        explanation = jitted.on_miss.explanation
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
        explain_failure(result, error)
    return result


def train_model(model: Model) -> Result:
    """The same in training: three steps of plain gradient descent, in which outputs, gradients and buffers are compared."""
    result = Result(model.key, model.kind)
    try:
        torch.manual_seed(0)
        plain = model.build().train()
        settle(plain)
        result.parameters = sum(p.numel() for p in plain.parameters())
        compiled, original = copy.deepcopy(plain), copy.deepcopy(plain)
        wanted = [step(plain, batch(model, seed), seed) for seed in SEEDS]
        far: Disagreement | None = None
    except Exception as error:
        explain_failure(result, error)
        return result
    result.state = "failed"
    try:
        frameloom.jit(compiled)
        explanation = compiled._compiled_call_impl.__func__.on_miss.explanation
        for seed, want in zip(SEEDS, wanted, strict=True):
            start = time.perf_counter()
            got = step(compiled, batch(model, seed), seed)
            result.first = result.first or time.perf_counter() - start
            try:
                if far is None:
                    check_roughly(got, want)
                result.difference = max(result.difference, compare_training(got, want))
            except Disagreement as error:
                far = far or error
        tell_graphs(result, explanation)
        if far is not None:
            check_in_float64(model, original, far)
        if explanation.plain or not explanation.graphs:
            raise Disagreement(f"runs plainly: {explanation.plain}")
        result.state = "passed"
    except Exception as error:
        explain_failure(result, error)
    return result


def tell_graphs(result: Result, explanation: Any) -> None:
    """How much of a training step was captured whole: a case that costs more than one entry has a graph for each."""
    result.graphs, result.ops = len(explanation.graphs), explanation.n_ops
    result.capture = explanation.seconds.get("capture", 0.0)
    result.backward = sum(len(g.backward) for g in explanation.graphs)
    result.breaks = tuple(
        dict.fromkeys([*(b.text for b in explanation.breaks), *explanation.plain])
    )
    result.whole = not result.breaks and all(len(g.backward) == 1 for g in explanation.graphs)


def batch(model: Model, seed: int) -> dict[str, Any]:
    """Two images: batch norms of single pixels need as many, and PyTorch's own derivative of a batch norm is wrong for one image whose gradient is
    laid out channels-last (2.13, CPU)."""
    inputs = (model.trained_with or model.inputs)(seed)
    if model.package == "timm":
        inputs = {k: torch.cat([v, model.inputs(seed + 10)[k]]) for k, v in inputs.items()}
    return inputs


def step(module: Any, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
    """One training step with random numbers of its own, and what can be seen of it."""
    module.zero_grad()
    torch.manual_seed(seed)
    numpy.random.seed(seed)  # which masks of speech are drawn from
    random.seed(seed)
    with torch.enable_grad():
        result = module(**copied(inputs))
        outputs = [t for _, t in parts(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        sum(o.float().square().mean() for o in outputs).backward()
    seen = {
        name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()
    }
    with torch.no_grad():
        for p in module.parameters():
            if p.grad is not None:
                p -= 1e-3 * p.grad / p.grad.norm().clamp_min(1e-3)
    buffers = {f"buffer {name}": b.clone() for name, b in module.named_buffers()}
    return {"result": result, "gradients": seen, "buffers": buffers, "random": torch.rand(2)}


def check_roughly(got: dict[str, Any], want: dict[str, Any]) -> None:
    """All gradients together, as long as the steps before were the same."""
    pairs = [
        (got["gradients"][name].flatten().double(), w.flatten().double())
        for name, w in want["gradients"].items()
        if w is not None and got["gradients"][name] is not None
    ]
    if pairs:
        ours, theirs = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        if not (ours - theirs).norm() <= 0.5 * theirs.norm() + 1e-12:
            raise Disagreement("the gradients are others")


def check_in_float64(model: Model, original: Any, far: Disagreement) -> None:
    """Rounding may grow on its way through a model, and turn the sign before a ReLU: what is far off in float32 has to agree in float64."""
    with floats_are_wide():
        compare_in_float64(model, original, far)


@contextmanager
def floats_are_wide() -> Iterator[None]:
    """A model that computes parts of it in float32, whatever it is given, would round there: `x.float()` is float64, too."""
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    try:
        yield
    finally:
        del torch.Tensor.float


def compare_in_float64(model: Model, original: Any, far: Disagreement) -> None:
    def widened(value: Any) -> Any:
        if isinstance(value, list):
            return [widened(v) for v in value]
        if isinstance(value, dict):
            return {name: widened(v) for name, v in value.items()}
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.double() if is_float else value

    plain, compiled = original.double(), copy.deepcopy(original).double()
    moved = copy.deepcopy(plain)
    frameloom.jit(compiled)
    for seed in SEEDS:
        inputs = widened(batch(model, seed))
        # Each step starts from the same: what steps make of a difference is not asked.
        for other in (compiled, moved):
            other.load_state_dict(plain.state_dict())
        with torch.no_grad():
            for p in moved.parameters():
                p *= 1 + torch.finfo(torch.float64).eps * torch.randn_like(p)
        want = step(plain, inputs, seed)
        # How far plain PyTorch is from itself where each parameter is a neighbouring number.
        apart = compare_training(step(moved, inputs, seed), want, math.inf)
        try:
            compare_training(step(compiled, inputs, seed), want, max(1e-7, 10 * apart))
        except Disagreement as error:
            raise Disagreement(
                f"{far}; in float64: {error}, plain itself by {apart:.2g}"
            ) from error


def compare_training(
    got: dict[str, Any], want: dict[str, Any], tolerance: float = 10 * TOLERANCE
) -> float:
    largest = max(
        (g.abs().max().item() for g in want["gradients"].values() if g is not None and g.numel()),
        default=0.0,
    )
    worst = compare(
        {k: v for k, v in got.items() if k != "gradients"},
        {k: v for k, v in want.items() if k != "gradients"},
    )
    for name, w in want["gradients"].items():
        g = got["gradients"][name]
        if (g is None) != (w is None):
            raise Disagreement(f"gradient of {name}: {'none' if g is None else 'one'}")
        if w is None or not w.numel():
            continue
        scale = max(w.abs().max().item(), 1e-3 * largest, 1e-12)
        difference = (g - w).abs().max().item() / scale
        if not difference <= tolerance:
            raise Disagreement(
                f"gradient of {name}: differs by {difference:.2g} of the largest value"
            )
        worst = max(worst, difference)
    return worst


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
