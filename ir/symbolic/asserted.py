"""Finds conditions on sizes that are noted inside an `assert`.

With `python -O` the `assert` would not run, and the code would lack the guard.

With FRAMELOOM_VERIFY=1 each condition is checked for this.  Code that has to compare sizes to be sure of
something uses `compare.require`.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
OF_SIZES = frozenset(map(str, FOLDER.glob("*.py")))  # the files that compute with sizes
PACKAGES = ("capture", "codegen", "ir", "jit", "runtime")


def refuse_in_assert() -> None:
    """Raises if the current comparison of sizes is inside an `assert` of our code."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in OF_SIZES:
        frame = frame.f_back
    path = frame.f_code.co_filename
    if ours(path) and frame.f_lineno in asserted_lines(path):
        raise AssertionError(f"{path}:{frame.f_lineno}: a condition on sizes is noted in an assert")


def ours(path: str) -> bool:
    return any(path.startswith(str(FOLDER.parent.parent / package)) for package in PACKAGES)


@cache
def asserted_lines(path: str) -> frozenset[int]:
    tree = ast.parse(Path(path).read_text())
    return frozenset(
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )
