"""RESULTS.md from the results of units."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

Unit = dict[str, Any]


def markdown(units: list[Unit], samples: int, samples_others: int) -> str:
    by_op: dict[str, list[Unit]] = {}
    for unit in units:
        by_op.setdefault(unit["op"], []).append(unit)
    revisions = Counter(u.get("revision", "unknown") for u in units)
    lines = [
        "# The op database, compiled against eager",
        "",
        "Written by `make ops`; what is compared, and how, is said in `tests/ops/__init__.py`.",
        f"Of each op, at most {samples or 'all'} samples in float32's function form and {samples_others or 'all'} of every other dtype and form, the first, the last and",
        "others at equal distances between them; all error inputs.",
        f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}, CPU.  Revision: "
        + ", ".join(f"{name} ({n} units)" for name, n in revisions.most_common()) + ".",
        *(SEVERAL if len(revisions) > 1 else ()),
        "",
        *summary(by_op),
        "",
        "## By dtype and form",
        "",
        "Cases, and how many of them have loops of ours.",
        "",
        *by_dtype_and_form(units),
        "",
        "## Ops that are not captured whole",
        "",
        "| op | samples | not whole | reasons |",
        "|---|---|---|---|",
    ]  # fmt: skip
    for name, own in by_op.items():
        functions = [u for u in own if u["form"] == "function"]
        missing = Counter[str]()
        for u in functions:
            missing.update({reason(text): n for text, n in u["not_whole"].items()})
        if missing:
            tried = sum(u["cases"] - u["refused"] for u in functions)
            told = "; ".join(f"{text} ({n})" for text, n in missing.most_common(3))
            lines.append(f"| {name} | {tried} | {sum(missing.values())} | {told} |")
    lines += ["", "## Wrong or crashed", ""]
    found = [
        f"- {unit['op']} {unit['dtype']} {unit['form']}: {kind}: {cell(text)}"
        for unit in units
        for kind in ("wrong", "crashed")
        for text in unit[kind]
    ]
    lines += found or ["None."]
    lines += [
        "",
        "## Ops",
        "",
        "Whole: of the accepted samples of the function form, all dtypes, how many are one graph.  Compiled: cases run with kernels from the C++ compiler, and",
        "the dtypes they are of.  Undefined: cases in which eager leaves elements as the memory was, and those were not compared.",
        "",
        "| op | cases | dtypes | whole | what runs | compiled | wrong | crashed | undefined |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row(name, own) for name, own in by_op.items()),
    ]
    return "\n".join(lines) + "\n"


SEVERAL = (
    "Put together from runs at these revisions: units that a later change concerns were tried again.",
)
SHORT = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16", "int64": "i64", "bool": "bool", "complex64": "c64"}  # fmt: skip


def row(name: str, own: list[Unit]) -> str:
    functions = [u for u in own if u["form"] == "function"]
    whole = f"{total(functions, 'whole')}/{sum(u['cases'] - u['refused'] for u in functions)}"
    dtypes = " ".join(SHORT[u["dtype"]] for u in functions)
    compiled = sorted({SHORT[d] for u in own for d in u.get("compiled_dtypes", ())})
    n = ways_of(own)["compiled"]
    return (
        f"| {name} | {total(own, 'cases')} | {dtypes} | {whole} | {what_runs(own)} | {n}"
        f"{': ' * bool(n)}{' '.join(compiled)} | {total(own, 'n_wrong')} | {total(own, 'n_crashed')} | {undefined_of(own)} |"
    )


def what_runs(own: list[Unit]) -> str:
    """Loops, library calls, or both, with the names of some of those calls."""
    library = sorted(
        {t.removeprefix("aten.").removesuffix(".default") for u in own for t in u["library"]}
    )
    named = ", ".join(library[:3]) + (", ..." if len(library) > 3 else "")
    loops = "loops" if total(own, "with_loops") else ""
    nothing = "views" if total(own, "whole") else "not captured"
    return "; ".join(part for part in (loops, named) if part) or nothing


def by_dtype_and_form(units: list[Unit]) -> Iterable[str]:
    forms = list(dict.fromkeys(u["form"] for u in units))
    yield f"| dtype | {' | '.join(forms)} |"
    yield "|---" * (len(forms) + 1) + "|"
    for dtype in dict.fromkeys(u["dtype"] for u in units):
        counts = []
        for form in forms:
            own = [u for u in units if (u["dtype"], u["form"]) == (dtype, form)]
            counts.append(f"{total(own, 'cases')} ({total(own, 'with_loops')})" if own else "")
        yield f"| {dtype} | {' | '.join(counts)} |"


def summary(by_op: dict[str, list[Unit]]) -> Iterable[str]:
    everything = [u for own in by_op.values() for u in own]
    counted = [own for own in by_op.values() if any(u["form"] == "function" for u in own)]
    whole = sum(map(is_whole, counted))
    ways = ways_of(everything)
    yield "| | |"
    yield "|---|---|"
    yield f"| ops (with variants) | {len(by_op)} |"
    yield f"| captured whole: every accepted sample of the function form in one graph | {whole} of {len(counted)} ({100 * whole / max(len(counted), 1):.1f} %) |"
    yield f"| ops with loops of ours in some case | {sum(bool(total(own, 'with_loops')) for own in counted)} |"
    yield f"| cases | {total(everything, 'cases')} |"
    yield f"| checked as recorded / as loops / compiled | {ways['recorded']} / {ways['loops']} / {ways['compiled']} |"
    yield f"| compiled: ops, and pairs of op and dtype | {sum(bool(ways_of(own)['compiled']) for own in counted)}, {sum(len(u.get('compiled_dtypes', ())) for u in everything)} |"
    for kind in ("wrong", "crashed"):
        ops = sum(bool(total(own, f"n_{kind}")) for own in by_op.values())
        yield f"| {kind} | {total(everything, f'n_{kind}')} cases of {ops} ops |"
    undefined = {name: n for name, own in by_op.items() if (n := undefined_of(own))}
    yield f"| with elements that eager leaves undefined, which are not compared | {sum(undefined.values())} cases of {len(undefined)} ops |"
    broken = [u for u in everything if "samples_fail" in u]
    if broken:
        yield f"| units whose samples cannot be made | {len(broken)} |"
    yield f"| seconds in all | {sum(u.get('seconds', 0) for u in everything):.0f} |"


def is_whole(own: list[Unit]) -> bool:
    return not any(u["not_whole"] for u in own if u["form"] == "function")


def total(units: list[Unit], key: str) -> int:
    return sum(u[key] for u in units)


def undefined_of(units: list[Unit]) -> int:
    return sum(u.get("undefined", 0) for u in units)


def ways_of(units: list[Unit]) -> Counter[str]:
    found = Counter[str]()
    for u in units:
        found.update(u["ways"])
    return found


def reason(text: str) -> str:
    return cell(re.sub(r"0x[0-9a-f]+", "", text))[:120]


def cell(text: str) -> str:
    return " ".join(text.replace("|", "·").split())
