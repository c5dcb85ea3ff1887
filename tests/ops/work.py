"""One unit (op, dtype, form) done: its cases tried, a few of them compiled.  Runs in a child process; results go out as plain dicts."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

from tests.ops.cases import Case, cases
from tests.ops.trial import Internal, Trial, compile_all

SHOWN = 6  # failures of a unit that are kept in words


def do_unit(
    op: Any,
    dtype: str,
    form: str,
    compiled: int,
    skip: frozenset[int] = frozenset(),
    limit: int = 0,
    starting: Callable[[int], None] = lambda number: None,
    first: int | None = None,
) -> dict[str, Any]:
    """`first`: only so many cases from the beginning.  `skip`: cases that ended the process before.  `limit`: at most so many cases, spread over all; 0 means all.  `starting` is told each case."""
    warnings.simplefilter("ignore")
    started = time.monotonic()
    unit: dict[str, Any] = {
        "op": op.full_name, "dtype": dtype, "form": form, "cases": 0, "refused": 0, "whole": 0, "not_whole": {},
        "ways": Counter(), "n_wrong": 0, "wrong": [], "n_crashed": 0, "crashed": [], "with_loops": 0, "library": [],
    }  # fmt: skip
    try:
        found = list(islice(cases(op, dtype, form), first))
    except Exception as error:
        return unit | {"samples_fail": f"{type(error).__name__}: {error}"[:200]}
    chosen = spread(len(found), limit)
    to_compile = {chosen[k] for k in spread(len(chosen), compiled)} if compiled else set()
    waiting: list[Trial] = []
    texts: set[str] = set()
    library: set[str] = set()
    for number in chosen:
        if number in skip:
            continue
        starting(number)
        trial = tried(found[number], unit)
        if trial is None:
            continue
        library.update(trial.outcome.library)
        if number in to_compile and trial.runner.pieces and not trial.outcome.crashed:
            text = trial.text()
            if text not in texts:
                texts.add(text)
                waiting.append(trial)
                continue
        count(trial, unit)
    starting(-1)
    if waiting:
        finish(waiting, unit)
    unit["library"] = sorted(library)
    unit["seconds"] = round(time.monotonic() - started, 2)
    return unit


def tried(case: Case, unit: dict[str, Any]) -> Trial | None:
    try:
        return Trial(case)
    except (Exception, Internal) as error:
        unit["cases"] += 1
        note(unit, "crashed", case.number, f"the test itself: {type(error).__name__}: {error}")
        return None


def finish(trials: list[Trial], unit: dict[str, Any]) -> None:
    try:
        compile_all(trials)
    except Exception:
        for trial in trials:  # one by one, to see whose fault it is
            try:
                compile_all([trial])
            except Exception as error:
                trial.outcome.crashed.append(
                    f"building: {type(error).__name__}: {str(error)[:300]}"
                )
    for trial in trials:
        if not trial.outcome.crashed:
            trial.check_compiled()
        count(trial, unit)


def count(trial: Trial, unit: dict[str, Any]) -> None:
    outcome = trial.outcome
    unit["cases"] += 1
    unit["refused"] += outcome.refused
    unit["ways"].update(outcome.ways)
    unit["with_loops"] += outcome.kernels > 0
    if not outcome.refused:
        unit["whole"] += outcome.whole
        if not outcome.whole:
            unit["not_whole"][outcome.why] = unit["not_whole"].get(outcome.why, 0) + 1
    for kind in ("wrong", "crashed"):
        if found := getattr(outcome, kind):
            note(unit, kind, trial.case.number, "; ".join(found))


def note(unit: dict[str, Any], kind: str, number: int, text: str) -> None:
    unit[f"n_{kind}"] += 1
    if len(unit[kind]) < SHOWN:
        unit[kind].append(f"case {number}: {text}"[:600])


def spread(n: int, wanted: int) -> list[int]:
    """`wanted` of n numbers, the first and others at equal distances; all for 0."""
    if wanted == 0 or wanted >= n:
        return list(range(n))
    return sorted({round(k * (n - 1) / max(wanted - 1, 1)) for k in range(wanted)})
