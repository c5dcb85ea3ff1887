"""Which tests are likely to notice a fault in a file: the one that noticed it before (RESULTS.md), those that name the file, those of its subject and folder, then all others; short ones first."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.tree import ROOT

# Which tests look closest at which files.
CLOSE = {
    r"ir/passes/(memory|inplace|fuse|batch)": r"ir/test_(memory|fuse|alike)",
    r"ir/passes/dependence": r"ir/test_fuse|capture/test_ops_as_eager",
    r"ir/(index|cases|substitute)": r"ir/test_index",
    r"ir/rules": r"ir/test_rewrite",
    r"capture/autograd/(trace|outputs|prune|accumulate_order)|jit/autograd/gradients": r"gradients_(saved|inputs|outputs|backward|twice)",
    r"capture/autograd/partition": r"gradients_(saved|checkpoint)",
    r"capture/(tensors/functionalize|recording/)": r"capture/test_record|31_in_place",
    r"capture/resume/(effects|object_aliases)": r"34_effects|guards_objects|1[2-5]_",
    r"capture/values/containers/container": r"12_lists",
    r"capture/(bytecode/liveness|resume/resume_function)": r"35_breaks|40_try",
    r"guards/guard_set\.py": r"jit/sizes/test_dynamic\.|numbers",
    r"native/guard_sections": r"62_guards_objects",
    r"native/guard_(walk|objects|containers|tensors|loads)": r"capture/test_guards(_of_tensors)?\.|02_changes|31_in_place",
    r"native/tensor_check": r"gradients_inputs|late_sizes|jit/sizes/test_dynamic\.",
    r"native/guard_sizes|runtime/executor/sizes": r"runtime/test_sizes|size_guards|sizes_compared",
    r"codegen/(triton/|schedule/(tile_gpu|partition))": r"codegen/test_(triton|cumulative)",
    r"codegen/cpp/": r"codegen/test_(reductions|pointwise)|dynamic_kernels",
    r"codegen/schedule/split": r"lower_reduce|codegen/test_reductions",
    r"runtime/build/": r"runtime/test_(build|cache)",
}
# And which at which subjects.
LIKELY = {
    "guards": r"guard|changes|jit_function",
    "capture": r"programs/|capture/",
    "rewrite rules": r"interp|pointwise",
    "index algebra": r"random_programs|lower_copies|lower_repeats|30_indexing",
    "fusion": r"random|in_place|write|effects|as_eager",
    "schedules": r"codegen/|jit/test_kernels",
    "memory plans": r"random|runtime/test_plan|memory",
    "autograd": r"gradient|leaves|training|whole_steps|dependent_outputs|results_apart",
    "native runtime": r"runtime/|size",
    "caches": r"cache|build|autotune|tuning",
}
SLOW = re.compile(r"tests/(ops|zoo|cpython|mutants|fuzz)/|test_examples|test_structure")


@functools.cache
def _texts() -> dict[str, str]:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


@functools.cache
def _noticed() -> dict[str, str]:
    """The name of the test file that noticed a mutant before, by the mutant's name."""
    page = (ROOT / "tests" / "mutants" / "RESULTS.md").read_text()
    rows = re.findall(r"^\| (\w+) \|.*\| ([\w/]+\.py)::\S+ \|", page, re.M)
    return {name: Path(file).name for name, file in rows}


def tests_for(mutant: Mutant, seconds: Mapping[str, float]) -> list[str]:
    """All test files, those that are likely to notice `mutant` first; `seconds`: what each took before."""

    def place(test: str) -> tuple[float, float]:
        # Twice the time is worth half a point.
        took = seconds.get(test, 8.0)
        if Path(test).name == _noticed().get(mutant.name):
            return -100.0, took
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
    close = any(re.match(p, mutant.path) and re.search(t, test) for p, t in CLOSE.items())
    points = (
        6.0 * close
        + 5.0 * named
        + 4.0 * alike
        + 3.0 * bool(re.search(LIKELY[mutant.subject], test))
    )
    points += 1.0 * (test.split("/")[1] == path.parts[0])
    return points - 6.0 * bool(SLOW.search(test))
