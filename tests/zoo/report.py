"""RESULTS.md: every model with what came of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from importlib.metadata import version

from tests.zoo.trial import TOLERANCE, Result


def markdown(results: list[Result], command: str) -> str:
    lines = [
        "# The zoo",
        "",
        f"Made by `{command}`. {versions()}",
        "",
        "Every model is randomly initialised and small, in evaluation mode under `torch.no_grad()`, jitted with `fullgraph=True` and called with three inputs",
        f"of one shape. It passes if every call agrees with the plain model (structure, types, dtypes, shapes, strides, values within {TOLERANCE:g} of the",
        "largest value of each tensor), the case costs no more entries than the model's own changes of state, and a call with gradients agrees too.",
        "ops: recorded ATen operations; capture: seconds without compiling; first call: seconds with everything; difference: largest, relative.",
        "More than one entry: the first call changes the model (a cache it fills), which computes something else from then on.",
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
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "timm", "transformers"))
    return f"Python {platform.python_version()}, {packages}, {platform.machine()}."


def reason(result: Result) -> str:
    """In one cell of a table, with paths from the package on."""
    text = re.sub(r"\S*/(?:site-packages|python3\.\d+)/", "", result.reason)
    return text.removeprefix("FullGraphError: graph break ").replace("|", "·")
