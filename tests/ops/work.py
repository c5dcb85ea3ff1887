"""One unit (op, dtype, form) done: its cases tried, or some cases of the op compiled.  Runs in a child process; results go out as plain dicts."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tests.ops.cases import Case, cases, units
from tests.ops.trial import Internal, Trial, compile_all

SHOWN = 6  # failures of a unit that are kept in words
# How many cases of a dtype are compiled, by form: of each dtype, and of float32.
COMPILED = {"function": (1, 4), "strided": (1, 1), "inplace": (0, 1), "out": (0, 1)}
TRIED = 5  # cases of a unit among which those are looked for

# Told the number of a case, and whether it is only run plainly so far.
Starting = Callable[[int, bool], None]


def do_unit(
    op: Any,
    dtype: str,
    form: str,
    skip: frozenset[int] = frozenset(),
    limit: int = 0,
    starting: Starting = lambda number, plainly: None,
    first: int | None = None,
) -> dict[str, Any]:
    """`first`: only so many cases from the beginning.  `skip`: cases that ended the process before.  `limit`: at most so many cases, spread over all; 0 means all."""
    warnings.simplefilter("ignore")
    started = time.monotonic()
    unit = new_unit(op, dtype, form)
    if form == "compiled":
        compile_some(op, unit, skip, starting)
    else:
        try:
            found = list(islice(cases(op, dtype, form), first))
        except Exception as error:
            found = []
            unit["samples_fail"] = f"{type(error).__name__}: {error}"[:200]
        for number in spread(len(found), limit):
            if number in skip:
                continue
            trial = tried(found[number], number, unit, starting)
            if trial is not None:
                trial.check_loops()
                count(trial, unit)
    unit["library"] = sorted(unit["library"])
    unit["seconds"] = round(time.monotonic() - started, 2)
    return unit


def new_unit(op: Any, dtype: str, form: str) -> dict[str, Any]:
    return {
        "op": op.full_name, "dtype": dtype, "form": form, "cases": 0, "refused": 0, "undefined": 0, "whole": 0, "not_whole": {},
        "ways": Counter(), "n_wrong": 0, "wrong": [], "n_crashed": 0, "crashed": [], "with_loops": 0, "library": set(),
        "compiled_dtypes": [],
    }  # fmt: skip


def tried(case: Case, number: int, unit: dict[str, Any], starting: Starting) -> Trial | None:
    """Run plainly, captured, and checked as recorded."""
    starting(number, True)
    try:
        trial = Trial(case)
        starting(number, False)
        trial.capture()
        return trial
    except (Exception, Internal) as error:
        unit["cases"] += 1
        note(unit, "crashed", case.number, f"the test itself: {type(error).__name__}: {error}")
        return None


def compile_some(op: Any, unit: dict[str, Any], skip: frozenset[int], starting: Starting) -> None:
    """Cases whose loops have a text of their own: some of each dtype, built together."""
    waiting: list[tuple[str, Trial]] = []
    texts: set[str] = set()
    for at, (dtype, form, case) in enumerate(candidates(op)):
        wanted = COMPILED[form][dtype == "float32"]
        name = f"{dtype} {form}"
        if at in skip or sum(n == name for n, _ in waiting) >= wanted:
            continue
        trial = tried(case, at, unit, starting)
        if trial is None or not trial.lower() or not trial.outcome.kernels:
            continue
        text = trial.text()
        if text not in texts:
            texts.add(text)
            waiting.append((name, trial))
    starting(-1, False)
    finish([trial for _, trial in waiting])
    for at, (name, trial) in enumerate(waiting):
        if not trial.outcome.crashed:
            starting(at, False)
            trial.check_compiled()
        count(trial, unit, name)
    unit["compiled_dtypes"] = sorted({name.partition(" ")[0] for name, _ in waiting})


def candidates(op: Any) -> Iterator[tuple[str, str, Case]]:
    for dtype, form in units(op):
        if COMPILED.get(form, (0, 0))[dtype == "float32"]:
            try:
                found = list(cases(op, dtype, form))
            except Exception:
                continue
            for number in spread(len(found), TRIED):
                yield dtype, form, found[number]


def finish(trials: list[Trial]) -> None:
    if not trials:
        return
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


def count(trial: Trial, unit: dict[str, Any], name: str = "") -> None:
    outcome = trial.outcome
    unit["cases"] += 1
    unit["refused"] += outcome.refused
    unit["undefined"] += outcome.undefined
    unit["ways"].update(outcome.ways)
    unit["with_loops"] += outcome.kernels > 0
    unit["library"].update(outcome.library)
    if not outcome.refused:
        unit["whole"] += outcome.whole
        if not outcome.whole:
            unit["not_whole"][outcome.why] = unit["not_whole"].get(outcome.why, 0) + 1
    for kind in ("wrong", "crashed"):
        if found := getattr(outcome, kind):
            note(unit, kind, trial.case.number, f"{name} " * bool(name) + "; ".join(found))


def note(unit: dict[str, Any], kind: str, number: int, text: str) -> None:
    unit[f"n_{kind}"] += 1
    if len(unit[kind]) < SHOWN:
        unit[kind].append(f"case {number}: {text}"[:600])


def spread(n: int, wanted: int) -> list[int]:
    """`wanted` of n numbers, the first and others at equal distances; all for 0."""
    if wanted == 0 or wanted >= n:
        return list(range(n))
    return sorted({round(k * (n - 1) / max(wanted - 1, 1)) for k in range(wanted)})
