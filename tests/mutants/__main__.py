"""The command line: `python -m tests.mutants`; exit status 1 where fewer than 95 % are noticed."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from pathlib import Path

from tests.mutants.child import prepare
from tests.mutants.choice import tests_for
from tests.mutants.mutant import Mutant
from tests.mutants.planted import MUTANTS
from tests.mutants.results import Result, Store, table
from tests.mutants.tree import Tree
from tests.mutants.trial import run_fuzz, run_tests

WANTED = 0.95
FIRST = 6  # test files; to look into all of them for tests takes longer than most tests


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="regular expression: names of mutants")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="for the tests, the likely first; all by default"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of random programs after that")
    parser.add_argument(
        "--again", choices=("", "survivors", "all"), default="", help="run what has a result anew"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("/tmp/frameloom-mutants"), help="copies and results"
    )
    parser.add_argument("--output", type=Path, help="write the table there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left running, or planted
    prepare()
    store = Store(options.folder / "results.jsonl")
    plain, mutated = Tree(options.folder / "plain"), Tree(options.folder / "mutated")
    plain.fill()
    mutated.fill()
    for mutant in MUTANTS:
        known = store.results.get(mutant.key)
        done = known and options.again != "all" and (known.by or options.again != "survivors")
        if done or not re.search(options.only, mutant.name):
            continue
        try:
            with mutated.planted(mutant, plain):
                result = attempt(mutant, mutated, plain, store, options)
        except RuntimeError as error:
            print(f"{mutant.name}: {error}", flush=True)
            continue
        store.add(result)
        print(f"{mutant.name}: {result.by or 'SURVIVES'} ({result.seconds:.0f} s)", flush=True)
    page = table(MUTANTS, store)
    if options.output:
        options.output.write_text(page)
    else:
        print(page)
    results = [store.results.get(m.key) for m in MUTANTS]
    sys.exit(sum(bool(r and r.by) for r in results) < WANTED * len(results))


def attempt(
    mutant: Mutant, tree: Tree, plain: Tree, store: Store, options: argparse.Namespace
) -> Result:
    """Tests until one fails that does not fail without the mutant, then random programs."""
    began = time.time()
    seconds, minutes = options.seconds, options.minutes
    tests = tests_for(mutant, store.seconds)
    ran, skipped, several = 0, list[str](), FIRST
    while ran < len(tests) and time.time() - began < seconds:
        some = tests[ran : ran + several]
        run = run_tests(tree, some, seconds - (time.time() - began), skipped)
        whole = list(run.took)[:-1] if run.failed or run.out_of_time else list(run.took)
        store.learn({file: run.took[file] for file in whole})
        if not run.failed:
            ran, several = ran + len(some), 4 * several
            continue
        if run.failed in store.passes or _passes(run.failed, plain):
            store.note_passing(run.failed)
            return Result(mutant.key, run.failed, run.how, time.time() - began, "")
        skipped.append(run.failed)
        ran = max(tests.index(run.failed.split("::")[0]), ran)
    seen = "all tests" if ran >= len(tests) else f"less than {ran} of {len(tests)} test files"
    by, how, programs = run_fuzz(tree, plain, minutes, 0) if minutes > 0 else ("", "", 0)
    return Result(mutant.key, by, how, time.time() - began, f"{seen}, {programs} random programs")


def _passes(test: str, tree: Tree) -> bool:
    """By itself, or behind the others of its file."""
    file = test.split("::")[0]
    return any(test != run_tests(tree, [some], 600).failed for some in (test, file))


if __name__ == "__main__":
    main()
