"""RESULTS.md: every model with what came of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from importlib.metadata import version

from tests.zoo.trial import TOLERANCE, Result


def markdown(results: list[Result], command: str, notes: str = "") -> str:
    """The table of calls; `notes` says what was run at which revision."""
    lines = [
        "# The zoo",
        "",
        f"Made by `{command}`. {versions()} {notes}".strip(),
        "",
        "Every model is randomly initialised and small, in evaluation mode under `torch.no_grad()`, jitted with `fullgraph=True` and called with three inputs",
        f"of one shape. It passes if every call agrees with the plain model (structure, types, dtypes, shapes, strides, values within {TOLERANCE:g} of the",
        "largest value of each tensor), the case costs no more entries than the model's own changes of state, and a call with gradients agrees too.",
        "ops: recorded ATen operations; capture: seconds without compiling; first call: seconds with everything; difference: largest, relative.",
        "More than one entry: the first call changes the model (a cache it fills), which computes something else from then on.",
        "Training steps are in TRAINING.md.",
        "",
        *summary(results),
        "",
    ]
    failed = [r for r in results if r.state == "failed"]
    if failed:
        lines += ["## What does not pass", "", "| model | reason |", "|---|---|"]
        lines += [f"| {r.key} | {reason(r)} |" for r in failed]
        lines.append("")
    unbuilt = [r for r in results if r.state == "unbuilt"]
    if unbuilt:
        lines += [
            "## Not counted: the plain model does not run",
            "",
            "| model | reason |",
            "|---|---|",
        ]
        lines += [f"| {r.key} | {reason(r)} |" for r in unbuilt]
        lines.append("")
    lines += [
        "## All",
        "",
        "| model | kind | result | graphs | entries | ops | parameters | capture | first call | difference |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.key} | {r.kind} | {r.state} | {r.graphs} | {r.entries} | {r.ops} | {r.parameters} | {r.capture:.2f} | {r.first:.1f} | {r.difference:.1e} |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def training(results: list[Result], notes: str) -> str:
    """The table of training steps; `notes` says what was run at which revision."""
    tried = [r for r in results if r.state != "unbuilt"]
    passed, whole = (sum(map(key, tried)) for key in (has_passed, is_whole))
    lines = [
        "# The zoo in training",
        "",
        f"Made by `python -m tests.zoo --train`. {versions()} {notes}".strip(),
        "",
        "Three steps of plain gradient descent each, in training mode, with random numbers of their own; outputs, gradients, buffers and the random stream are",
        "compared with the plain model's. What is further off than rounding in float32 has to agree in float64, as nearly as plain PyTorch agrees with itself",
        "where parameters are neighbouring numbers. Whole: no graph break, and one backward graph for each forward graph. Where random numbers decide that",
        "a layer is left out, the likely side is compiled; the rare steps that take the other run plainly, as part of what is compared.",
        "",
        f"{len(tried)} models, {passed} passed ({100 * passed / len(tried):.1f} %), {whole} whole ({100 * whole / len(tried):.1f} %).",
        "",
        "| package | kind | passed | whole | tried |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys((r.key.partition("/")[0], r.kind) for r in tried):
        own = [r for r in tried if (r.key.partition("/")[0], r.kind) == name]
        counts = sum(map(has_passed, own)), sum(map(is_whole, own)), len(own)
        lines.append(f"| {name[0]} | {name[1]} | {' | '.join(map(str, counts))} |")
    lines += ["", "## Not passed, or not whole", "", "| model | graphs | first break, or reason |"]
    lines += ["|---|---|---|"]
    for r in tried:
        if not (has_passed(r) and is_whole(r)):
            why = r.reason or next(iter(r.breaks), "")
            why = re.sub(r"\S*/(?:site-packages|python3\.\d+)/", "", " ".join(why.split()))
            text = why.removeprefix("graph break ").replace("|", "·")[:200]
            lines.append(f"| {r.key} | {r.graphs} forward, {r.backward} backward | {text} |")
    unbuilt = [r.key for r in results if r.state == "unbuilt"]
    lines += [
        "",
        f"The plain model does not run: {', '.join(unbuilt) or 'none'}.",
        "",
        "## All",
        "",
    ]
    lines += ["| model | kind | result | graphs | ops | first step | difference |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    lines += [
        f"| {r.key} | {r.kind} | {r.state}{', whole' * is_whole(r)} | {r.graphs} + {r.backward} | {r.ops} | {r.first:.1f} | {r.difference:.1e} |"
        for r in tried
    ]
    return "\n".join(lines) + "\n"


def has_passed(result: Result) -> bool:
    return result.state == "passed"


def is_whole(result: Result) -> bool:
    return result.whole


def summary(results: list[Result]) -> Iterable[str]:
    yield "| package | kind | passed | tried |"
    yield "|---|---|---|---|"
    counted = [r for r in results if r.state != "unbuilt"]
    for package in sorted({r.key.partition("/")[0] for r in counted}):
        own = [r for r in counted if r.key.startswith(f"{package}/")]
        for kind in dict.fromkeys(r.kind for r in own):
            yield row(package, kind, [r for r in own if r.kind == kind])
        yield row(f"**{package}**", "**all**", own)


def row(package: str, kind: str, results: list[Result]) -> str:
    passed = sum(r.state == "passed" for r in results)
    return (
        f"| {package} | {kind} | {passed} ({100 * passed / len(results):.1f} %) | {len(results)} |"
    )


def versions() -> str:
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "timm", "torchvision", "transformers")
    )
    return f"Python {platform.python_version()}, {packages}, {platform.machine()}."


def reason(result: Result) -> str:
    """In one cell of a table, with paths from the package on."""
    text = re.sub(r"\S*/(?:site-packages|python3\.\d+)/", "", result.reason)
    return text.removeprefix("FullGraphError: graph break ").replace("|", "·")
