"""Runs CPython's own test modules plainly and under forced capture, and compares what becomes of each test.

    python -m tests.cpython.run [MODULE]... [--jobs N] [--results FILE]

Each module runs twice in processes of its own.  A test that ends the process is noted, and the rest of its module goes on in another one.  Differences
that are not listed in differences.py make the run fail.
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.cpython.differences import LEFT_OUT, reason_for

MODULES = (
    "test_generators test_exceptions test_with test_contextlib test_dict test_list test_set test_tuple test_iter test_itertools "
    "test_functools test_collections test_dataclasses test_enum test_scope test_unpack test_unpack_ex test_patma test_fstring "
    "test_descr test_class test_super test_call test_extcall test_keywordonlyarg test_positional_only_arg test_raise "
    "test_traceback test_math test_operator test_yield_from test_dictviews test_types test_opcache"
).split()
SECONDS = 400  # of one process
ROOT = Path(__file__).parents[2]


@dataclass
class Side:
    """What one way of running a module gave."""

    tests: dict = field(default_factory=dict)
    crashed: list = field(default_factory=list)
    counts: dict = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Result:
    module: str
    plain: Side
    forced: Side

    @property
    def differences(self) -> list:
        """(test, outcome plainly, outcome forced, reason or None)."""
        found = []
        for test, line in self.plain.tests.items():
            other = self.forced.tests.get(test)
            after = other["outcome"] if other else "crash" if test in self.forced.crashed else None
            if after is not None and after != line["outcome"]:
                found.append((test, line["outcome"], after, reason_for(test)))
        return found

    @property
    def missing(self) -> list:
        """Tests that one side alone has; what it left out for a reason does not count."""
        return [
            test
            for test in set(self.plain.tests) ^ set(self.forced.tests)
            if test not in self.forced.crashed and reason_for(test) is None
        ]

    @property
    def unlisted(self) -> list:
        nothing = [] if self.plain.tests else [(self.module, "?", "no tests", None)]
        return (
            nothing
            + [d for d in self.differences if d[3] is None]
            + [(test, "?", "not run", None) for test in self.missing]
        )


def run_side(module: str, forced: bool) -> Side:
    side, start = Side(), time.monotonic()
    left_out = [test for test in LEFT_OUT if forced and f"test.{module}." in test]
    while True:
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            command = [sys.executable, "-m", "tests.cpython.child", module, out.name]
            command += ["--forced"] if forced else []
            for test in [*left_out, *side.tests, *side.crashed]:
                command += ["--skip", test]
            try:
                subprocess.run(command, cwd=ROOT, timeout=SECONDS, capture_output=True, check=False)
            except subprocess.TimeoutExpired:
                pass
            running = None
            ended = False
            for line in map(json.loads, out):
                if "start" in line:
                    running = line["start"]
                elif "test" in line:
                    side.tests[line["test"]] = line
                    running = None
                else:
                    side.counts, ended = merged(side.counts, line["counts"]), True
        if ended or running is None:
            break
        side.crashed.append(running)
    side.seconds = time.monotonic() - start
    return side


def merged(a: dict, b: dict) -> dict:
    """Counts added up, also those inside."""
    result = dict(a)
    for key, value in b.items():
        result[key] = (
            merged(a.get(key, {}), value) if isinstance(value, dict) else a.get(key, 0) + value
        )
    return result


def run_module(module: str) -> Result:
    return Result(module, run_side(module, forced=False), run_side(module, forced=True))


def section(results: list[Result]) -> str:
    """The part of RESULTS.md for this interpreter."""
    total: dict = {}
    for result in results:
        total = merged(total, result.forced.counts)
    lines = [f"## CPython {platform.python_version()}", ""]
    lines.append(
        "| module | tests | same | listed | unlisted | functions | captured whole | with breaks | left plain | calls of new code | s |"
    )
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    for result in results:
        counts, differences = result.forced.counts, result.differences
        captured = counts.get("captured", {})
        listed = sum(d[3] is not None for d in differences)
        tests = len(result.plain.tests)
        lines.append(
            f"| {result.module} | {tests} | {tests - len(differences)} | {listed} | {len(result.unlisted)} | {counts.get('functions', 0)} "
            f"| {captured.get('whole', 0)} | {captured.get('broken', 0)} | {sum(counts.get('left', {}).values())} "
            f"| {counts.get('calls', {}).get('code', 0)} | {result.forced.seconds:.0f} |"
        )
    for name, title in (
        ("left", "Left plain, by reason"),
        ("breaks", "Breaks, by kind"),
        ("bugs", "Failures of our own"),
    ):
        found = collections.Counter(total.get(name, {})).most_common(12)
        if found:
            lines += ["", f"{title}: " + ", ".join(f"{key} {count}" for key, count in found) + "."]
    lines += ["", "| differs | plainly | forced | why |", "|---|---|---|---|"]
    for result in results:
        for test, before, after, reason in [
            *result.differences,
            *[d for d in result.unlisted if d[2] == "not run"],
        ]:
            lines.append(
                f"| {test.removeprefix('test.')} | {before} | {after} | {reason or '**not explained**'} |"
            )
    for test, reason in LEFT_OUT.items():
        lines.append(f"| {test.removeprefix('test.')} | | left out | {reason} |")
    return "\n".join(lines) + "\n"


def kept(folder: Path, results: list[Result]) -> list[Result]:
    """These results and those of other modules from earlier runs of this version."""
    folder = folder / platform.python_version()
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        (folder / f"{result.module}.json").write_text(json.dumps(asdict(result)))
    found = []
    for module in MODULES:
        path = folder / f"{module}.json"
        if path.exists():
            data = json.loads(path.read_text())
            found.append(Result(module, Side(**data["plain"]), Side(**data["forced"])))
    return found


HEAD = """# CPython's own tests under forced capture

Made by `make cpython`: every function that a test module calls is captured where it can be (tests/cpython/forced.py), and each test must end as it does
without.  Differences are listed in tests/cpython/differences.py with their reason.

"""


def write(path: Path, text: str) -> None:
    """Put the section in the place of an older one for the same version."""
    old = path.read_text() if path.exists() else HEAD
    sections = {}
    for part in re.split(r"(?m)^(?=## CPython )", old)[1:]:
        sections[".".join(part.split()[2].split(".")[:2])] = part.rstrip() + "\n"
    sections[".".join(platform.python_version_tuple()[:2])] = text
    path.write_text(HEAD + "\n".join(sections[key] for key in sorted(sections)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path)
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder of results by module, which later runs of other modules add to",
    )
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = []
        for result in pool.map(run_module, options.modules or MODULES):
            results.append(result)
            print(
                f"{result.module}: {len(result.plain.tests)} tests, {len(result.differences)} differ, "
                f"{len(result.unlisted)} unlisted, {result.forced.seconds:.0f} s",
                flush=True,
            )
            for test, before, after, _ in result.unlisted:
                detail = result.forced.tests.get(test, {}).get("detail", "").strip().splitlines()
                print(f"  {test}: {before} -> {after}: {detail[-1] if detail else ''}", flush=True)
    if options.keep:
        results = kept(options.keep, results)
    if options.results:
        write(options.results, section(results))
    return int(any(result.unlisted for result in results))


if __name__ == "__main__":
    sys.exit(main())
