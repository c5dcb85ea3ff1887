"""Which tests are likely to notice a fault in a file: those that name it, those of its subject and folder, then all others; short ones first."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.tree import ROOT

# Tests of programs say little about where a fault is: each subject has some that look at what it does.
LIKELY = {
    "guards": r"guard|changes|jit_function",
    "capture": r"programs/|capture/",
    "rewrite rules": r"rewrite|interp|pointwise",
    "index algebra": r"index|random_programs|lower_copies|lower_repeats|30_indexing",
    "fusion": r"ir/test_(fuse|alike|random)|random|in_place|write|effects",
    "lowering": r"ir/test_lower|ir/test_pool|ir/test_unfold",
    "schedules": r"codegen/|jit/test_kernels|dynamic_kernels",
    "memory plans": r"memory|runtime/test_plan|in_place|shared_outputs|random_programs",
    "autograd": r"gradient|leaves|training|whole_steps|dependent_outputs",
    "sizes": r"size|dynamic",
    "native runtime": r"runtime/|capture/test_guard|capture/test_jit_function",
    "caches": r"cache|build|alike|autotune|tuning",
}
SLOW = re.compile(r"tests/(ops|zoo|cpython|mutants|fuzz)/|test_examples|test_structure")


@functools.cache
def _texts() -> dict[str, str]:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def tests_for(mutant: Mutant, seconds: Mapping[str, float]) -> list[str]:
    """All test files, those that are likely to notice `mutant` first; `seconds`: what each took before."""

    def place(test: str) -> tuple[float, float]:
        # Twice the time is worth half a point.
        took = seconds.get(test, 8.0)
        return -_relation(mutant, test) + took / 15, took

    tests = [test for test in _texts() if "tests/mutants/" not in test]
    return sorted(tests, key=place)


def _relation(mutant: Mutant, test: str) -> float:
    path = Path(mutant.path)
    words = {w for w in re.split(r"[_\W]", path.stem) if len(w) > 3}
    own = set(re.split(r"[_\W]", Path(test).stem))
    alike = any(w.rstrip("s") == o.rstrip("s") for w in words for o in own)
    module = path.with_suffix("").as_posix().replace("/", ".").removeprefix("jit.")
    named = re.search(rf"frameloom\.{re.escape(module)}\b", _texts()[test]) is not None
    points = 5.0 * named + 4.0 * alike + 3.0 * bool(re.search(LIKELY[mutant.subject], test))
    points += 1.0 * (test.split("/")[1] == path.parts[0])
    return points - 6.0 * bool(SLOW.search(test))
