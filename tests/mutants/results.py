"""What came of each mutant, kept as lines of JSON, and the table of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.mutant import Mutant


@dataclass(frozen=True)
class Result:
    """Of one mutant; `by` is the test or random program that noticed it, empty where none did."""

    key: str
    by: str
    how: str
    seconds: float
    ran: str  # what did not notice it


class Store:
    """The last result of each mutant, and how long test files took."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results: dict[str, Result] = {}
        self.seconds: dict[str, float] = {}
        self.passes: set[str] = set()  # tests that do without a mutant
        lines = path.read_text().splitlines() if path.exists() else []
        for row in map(json.loads, lines):
            if "took" in row:
                self.seconds |= row["took"]
            elif "passes" in row:
                self.passes.add(row["passes"])
            else:
                self.results[row["key"]] = Result(**row)

    def add(self, result: Result) -> None:
        self.results[result.key] = result
        self._write(asdict(result))

    def learn(self, took: dict[str, float]) -> None:
        """Only files that ran to their end."""
        self.seconds |= took
        self._write({"took": took})

    def note_passing(self, test: str) -> None:
        self.passes.add(test)
        self._write({"passes": test})

    def _write(self, row: object) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def table(mutants: Sequence[Mutant], store: Store) -> str:
    """The page RESULTS.md."""
    known = [(m, store.results[m.key]) for m in mutants if m.key in store.results]
    killed = sum(bool(r.by) for _, r in known)
    subjects = Counter(m.subject for m, _ in known)
    noticed = Counter(m.subject for m, r in known if r.by)
    head = [
        "# Planted faults",
        "",
        "Written by `python -m tests.mutants`; docs/testing.md says what it does.",
        "",
        f"{killed} of {len(known)} noticed, {sum(r.by.startswith('tests.fuzz') for _, r in known)} of them by random programs.",
        "",
        "| subject | noticed |",
        "|---|---|",
        *(f"| {subject} | {noticed[subject]} of {count} |" for subject, count in subjects.items()),
        "",
        "| mutant | file | what goes wrong | noticed by | s |",
        "|---|---|---|---|---|",
    ]
    rows = [
        f"| {m.name} | {m.path} | {m.wrong} | {_cell(r.by) or 'nothing'} | {r.seconds:.0f} |"
        for m, r in known
    ]
    return "\n".join([*head, *rows]) + "\n"


def _cell(text: str) -> str:
    return text.removeprefix("tests/").replace("|", "\\|")[:110]
