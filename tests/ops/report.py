"""RESULTS.md from the results of units."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

Unit = dict[str, Any]


def markdown(units: list[Unit]) -> str:
    by_op: dict[str, list[Unit]] = {}
    for unit in units:
        by_op.setdefault(unit["op"], []).append(unit)
    lines = [
        "# The op database, compiled against eager",
        "",
        "Written by `make ops`; what is compared, and how, is said in `tests/ops/__init__.py`.",
        "It is put together from what is in the store: units that were done before a change are not done again, and a unit may have been cut to",
        "some of its samples (`--samples`); the columns count what ran.",
        f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}, CPU.",
        "",
        *summary(by_op),
        "",
        "## Ops that are not captured whole",
        "",
        "| op | samples | not whole | reasons |",
        "|---|---|---|---|",
    ]
    for name, own in by_op.items():
        functions = [u for u in own if u["form"] == "function"]
        missing = Counter[str]()
        for u in functions:
            missing.update({reason(text): n for text, n in u["not_whole"].items()})
        if missing:
            samples = sum(u["cases"] - u["refused"] for u in functions)
            told = "; ".join(f"{text} ({n})" for text, n in missing.most_common(3))
            lines.append(f"| {name} | {samples} | {sum(missing.values())} | {told} |")
    lines += ["", "## Wrong or crashed", ""]
    for unit in units:
        for kind in ("wrong", "crashed"):
            for text in unit[kind]:
                lines.append(f"- {unit['op']} {unit['dtype']} {unit['form']}: {kind}: {cell(text)}")
    lines += [
        "",
        "## Ops",
        "",
        "Graphs: whole/accepted samples of the function form, all dtypes.  Loops: how many cases had loops of ours.",
        "",
        "| op | cases | whole | wrong | crashed | recorded | loops | compiled | library calls |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, own in by_op.items():
        ways = ways_of(own)
        functions = [u for u in own if u["form"] == "function"]
        whole = f"{sum(u['whole'] for u in functions)}/{sum(u['cases'] - u['refused'] for u in functions)}"
        library = sorted(
            {
                text.removeprefix("aten.").removesuffix(".default")
                for u in own
                for text in u["library"]
            }
        )
        shown = ", ".join(library[:4]) + (", ..." if len(library) > 4 else "")
        lines.append(
            f"| {name} | {total(own, 'cases')} | {whole} | {total(own, 'n_wrong')} | {total(own, 'n_crashed')} | "
            f"{ways['recorded']} | {ways['loops']} | {ways['compiled']} | {shown} |"
        )
    return "\n".join(lines) + "\n"


def summary(by_op: dict[str, list[Unit]]) -> Iterable[str]:
    everything = [u for own in by_op.values() for u in own]
    counted = [own for own in by_op.values() if any(u["form"] == "function" for u in own)]
    whole = sum(map(is_whole, counted))
    ways = ways_of(everything)
    yield "| | |"
    yield "|---|---|"
    yield f"| ops (with variants) | {len(by_op)} |"
    yield f"| captured whole: every accepted sample of the function form in one graph | {whole} of {len(counted)} ({100 * whole / max(len(counted), 1):.1f} %) |"
    yield f"| cases | {total(everything, 'cases')} |"
    yield f"| checked as recorded / as loops / compiled | {ways['recorded']} / {ways['loops']} / {ways['compiled']} |"
    for kind in ("wrong", "crashed"):
        ops = sum(bool(total(own, f"n_{kind}")) for own in by_op.values())
        yield f"| {kind} | {total(everything, f'n_{kind}')} cases of {ops} ops |"
    broken = [u for u in everything if "samples_fail" in u]
    if broken:
        yield f"| units whose samples cannot be made | {len(broken)} |"


def is_whole(own: list[Unit]) -> bool:
    return not any(u["not_whole"] for u in own if u["form"] == "function")


def total(units: list[Unit], key: str) -> int:
    return sum(u[key] for u in units)


def ways_of(units: list[Unit]) -> Counter[str]:
    found = Counter[str]()
    for u in units:
        found.update(u["ways"])
    return found


def reason(text: str) -> str:
    return cell(re.sub(r"0x[0-9a-f]+", "", text))[:120]


def cell(text: str) -> str:
    return " ".join(text.replace("|", "·").split())
