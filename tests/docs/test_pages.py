"""README and docs/ say what is so: each block of Python runs and prints what the page shows, each path, link and command exists.

A fence of `python` runs, those of a page in one process, in order.  A fence of `text` that comes next is what it prints; `...` stands for anything.
A fence of `sh` holds commands.
"""

from __future__ import annotations

import doctest
import importlib.util
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import fresh

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
RUN = [page for page in PAGES if "```python" in page.read_text()]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "text", "sh", "c", "cpp", "mermaid"}
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
FOLDERS = "benchmarks|capture|codegen|docs|examples|ir|jit|runtime|tests"
FILE = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")
OPTIONAL = ("transformers",)  # packages that pages use, and that tests do without
MARK = "\x1e"


@dataclass(frozen=True)
class Fence:
    language: str
    text: str
    start: int  # of the text, in characters of the page


def fences(page: Path) -> list[Fence]:
    return [Fence(m[1], m[2], m.start(2)) for m in FENCE.finditer(page.read_text())]


def program(page: Path) -> str:
    """The Python of a page, at its own lines; each block prints a mark first."""
    text = page.read_text()
    lines = [""] * (text.count("\n") + 1)
    for fence in fences(page):
        if fence.language == "python":
            first = text.count("\n", 0, fence.start)
            lines[first - 1] = f"print({MARK!r}, end='')"
            lines[first : first + fence.text.count("\n")] = fence.text.splitlines()
    return "\n".join(lines)


def shown(page: Path) -> Iterator[tuple[int, str]]:
    """What the page says that its blocks of Python print: number of the block, text."""
    found = fences(page)
    python = [f for f in found if f.language == "python"]
    for fence, after in itertools.pairwise(found):
        if fence.language == "python" and after.language == "text":
            yield python.index(fence), after.text


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", RUN, ids=name)
def test_blocks_run_and_print_what_the_page_shows(page: Path) -> None:
    run = fresh.run(program(page), file=page)
    for package in OPTIONAL:
        if f"No module named '{package}'" in run.stderr:
            pytest.skip(f"needs {package}")
    assert run.returncode == 0, run.stderr
    printed = run.stdout.split(MARK)[1:]
    for number, want in shown(page):
        got = printed[number].replace(f"{ROOT}/", "")
        equal = doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)
        assert equal, f"block {number + 1} prints\n{got}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert {f.language for f in fences(page)} <= LANGUAGES
    links = LINK.findall(re.sub(r"`[^`\n]*`", "", text))
    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [path for path in FILE.findall(text) if not (ROOT / path).exists()]
    assert not missing


def test_every_setting_is_on_its_page() -> None:
    read = re.findall(r"FRAMELOOM_[A-Z_]+", (ROOT / "jit/config.py").read_text())
    page = (ROOT / "docs/settings.md").read_text()
    assert not [name for name in {*read} if f"`{name}" not in page]


def test_the_readme_is_a_page() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if len(line) > 110]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_of_a_page_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = "".join(f.text for f in fences(page) if f.language == "sh")
    assert {*re.findall(r"^make ([a-z]+)", commands, re.MULTILINE)} <= targets
    modules = set(re.findall(r"python -m ([\w.]+)", commands))
    assert not [m for m in modules if importlib.util.find_spec(m) is None]
