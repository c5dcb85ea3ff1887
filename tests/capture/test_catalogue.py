"""docs/breaks.md is the catalogue of breaks as a page; `python -m tests.capture.test_catalogue` writes it anew."""

import re
from pathlib import Path

from frameloom.capture.interpreter.break_catalogue import CATALOGUE, UNKNOWN, report
from frameloom.errors import Break, Where

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "breaks.md"
HEAD = """# Graph breaks

Where Frameloom meets something it cannot put into a graph, it compiles what it has, runs that piece as plain Python, and goes on capturing after
it: a *graph break*. The result is the same; a break costs the fusion across it and a few microseconds. `FRAMELOOM_LOGS=breaks` prints each one,
`frameloom.explain(fn)(*args).breaks` returns them, and `fullgraph=True` makes the first one an error. Each names one of these kinds:

| kind | why it breaks | what to try |
|---|---|---|
"""


def page() -> str:
    rows = (f"| `{kind}` | {why} | {advice} |" for kind, (why, advice) in sorted(CATALOGUE.items()))
    return HEAD + "\n".join(rows) + "\n"


def test_the_page_is_fresh():
    assert PAGE.read_text() == page(), "run: python -m tests.capture.test_catalogue"


def test_every_break_raised_is_in_the_catalogue():
    raised = set()
    for path in [*(ROOT / "capture").rglob("*.py"), *(ROOT / "jit").rglob("*.py")]:
        raised |= set(re.findall(r'\bBreak\(\s*"(\w+)"', path.read_text()))
    assert raised <= set(CATALOGUE), f"not in the catalogue: {raised - set(CATALOGUE)}"


def test_a_report_has_at_most_six_lines():
    for kind in [*CATALOGUE, "no such kind"]:
        text = report(Break(kind, "f(...)"), Where(__file__, 1, 0, 10, "f")).text
        assert len(text.splitlines()) <= 6, text
    assert UNKNOWN not in CATALOGUE.values()


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
