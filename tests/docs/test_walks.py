"""The walks of CONTRIBUTING.md hold: so many files of the product name what each adds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = {
    "LIST_TO_TUPLE": ["capture/interpreter/opcodes/containers.py"],
    "bisect_left": ["capture/library/containers/heaps.py"],
    "deque": ["capture/library/containers/deques.py", "capture/values/containers/deque.py"],
    "mish": ["ir/lower/ops/activation.py"],
    "atan2": [
        "capture/values/policy.py",
        "codegen/cpp/vector_math.h",
        "ir/lower/ops/pointwise.py",
        "ir/ops.py",
    ],
    "logaddexp": [
        "capture/library/numpy_api/ufuncs.py",
        "codegen/cpp/vector_math.h",
        "ir/lower/ops/pointwise.py",
        "ir/lower/ops/scan.py",
        "ir/ops.py",
        "ir/reductions.py",
    ],
    "where(p, x, x) -> x": ["ir/rules/selection.py"],
    "row_buffers": ["codegen/schedule/row_buffers.py", "codegen/schedule/tile_cpu.py"],
    "storage_offset_multiple": [
        "capture/library/torch_api/torch_functions.py",
        "capture/native/guard_tensors.c",
    ],
    "method_self": ["capture/interpreter/wrap.py", "capture/native/guard_loads.c"],
}
USERS = {"jit/backend/background.py"}  # a queue of jobs
SUFFIXES = {".py", ".pyi", ".c", ".h", ".cpp"}


@pytest.mark.parametrize("word", WALKS)
def test_a_walk_touches_the_files_that_it_names(word: str) -> None:
    named = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    found = []
    for folder in ("jit", "capture", "ir", "codegen", "runtime"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix not in SUFFIXES:
                continue
            if named.search(path.read_text()) or path.stem == word:
                found.append(path.relative_to(ROOT).as_posix())
    found = sorted({*found} - USERS)
    assert found == WALKS[word]
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert not [path for path in found if path not in page]
