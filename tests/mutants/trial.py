"""Runs tests and random programs on a copy, with time limits, until one fails."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.child import Child
from tests.mutants.tree import Tree

SECONDS = 120.0  # for one test; one that takes longer hangs
QUIET = 60.0  # to start, and between tests


@dataclass
class Run:
    """What came of a list of tests: the first that fails, and how."""

    failed: str = ""
    how: str = ""
    took: dict[str, float] = field(default_factory=dict)  # seconds of each file
    out_of_time: bool = False


def run_tests(tree: Tree, tests: Sequence[str], seconds: float, skipped: Sequence[str] = ()) -> Run:
    given = ["-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.watch"]
    given += [f"--deselect={test}" for test in skipped]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        watched = Path(folder) / "watched"
        watched.touch()
        env = {"MUTANT_WATCH": str(watched), "TMPDIR": folder}
        with Child("pytest", [*given, *tests], tree, env, Path(folder) / "output") as child:
            began = time.time()
            run = Run()
            while not child.ended(0.2):
                rows = _rows(watched)
                last, since = (rows[-1]["test"], rows[-1]["at"]) if rows else ("", began)
                if time.time() - since > SECONDS + (0 if rows else QUIET):
                    run.failed, run.how = last or tests[0], "hangs"
                    break
                if time.time() - began > seconds:
                    run.out_of_time = True
                    break
        rows = _rows(watched)
        for row in rows:
            if row["what"] == "took":
                file = row["test"].split("::")[0]
                run.took[file] = run.took.get(file, 0.0) + row["seconds"]
        failures = [row for row in rows if row["what"] == "fails"]
        if failures:
            run.failed, run.how = failures[0]["test"], failures[0]["text"]
        elif not run.failed and not run.out_of_time and child.status not in (0, 5):
            # Not even pytest came to its end.
            run.failed = rows[-1]["test"] if rows else tests[0]
            run.how = f"exit status {child.status}: {child.output()[-600:]}"
        return run


def run_fuzz(tree: Tree, plain: Tree, minutes: float, seed: int) -> tuple[str, str, int]:
    """The first random program that is wrong here and right in the plain copy: its name, how, and how many were run."""
    until = time.time() + 60 * minutes
    ran = 0
    while time.time() < until:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            scripts = Path(folder) / "scripts"
            left = (until - time.time()) / 60
            given = ["--programs", "100000", "--seed", str(seed), "--shrink", "0"]
            given += ["--minutes", f"{left:.2f}", "--out", str(scripts)]
            output = Path(folder) / "output"
            with Child("tests.fuzz", given, tree, {"TMPDIR": folder}, output) as child:
                while not child.ended(1.0) and time.time() < until + 60:
                    if sorted(scripts.glob("*.py")):
                        break
            found = sorted(scripts.glob("*.py"))
            if not found:
                told = re.search(r"^(\d+) programs in", child.output(), re.MULTILINE)
                return "", "", ran + int(told[1]) if told else ran
            number = int(found[0].stem)
            ran, seed = ran + number - seed + 1, number + 1
            if not _wrong(plain, found[0]) and (how := _wrong(tree, found[0])):
                return f"tests.fuzz --seed {number}", how, ran
    return "", "", ran


def _wrong(tree: Tree, script: Path) -> str:
    output = script.with_suffix(".output")
    with Child("tests.fuzz.judge", [str(script)], tree, {}, output) as child:
        if not child.ended(SECONDS):
            return "hangs"
    return child.output()[-600:] or "dies" if child.status else ""


def _rows(watched: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in watched.read_text().splitlines() if line.endswith("}")]
