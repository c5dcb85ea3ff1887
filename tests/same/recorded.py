"""Writes what programs log, a file for each: `python -m tests.same.recorded FOLDER [--models N]`.

Nothing is compiled: graphs run in the interpreter of the loop IR.  What differs from run to run (seconds, addresses, where the copy lies) is left out.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["FRAMELOOM_LOGS"] = "breaks,recompiles,guards,graph,loops,kernels,sizes"
os.environ["FRAMELOOM_PROGRAMS"] = "compiled"

ROOT = Path(__file__).parents[2]
# With one word in place of what each run has its own of.
OWN = [
    (re.compile(re.escape(f"{ROOT}{os.sep}")), ""),
    (re.compile(r"0x[0-9a-f]{6,}"), "ADDRESS"),
    (re.compile(r"\b[0-9.]+ (?:s|ms|us)\b"), "TIME"),
    (re.compile(r"\b\d{12,}\b|\b\d{10}\.\d+"), "NUMBER"),  # identities of objects, times
]


def recorded(run: Callable[[], object]) -> str:
    """What is logged while that runs, in the interpreter; and what it raises."""
    from frameloom import debug
    from tests.fuzz.interpret import interpreted

    lines: list[str] = []
    # Not to stderr, which the programs' calls are compared on.
    printed = mock.patch.object(
        debug, "print", lambda text, **_: lines.append(str(text)), create=True
    )
    with printed, interpreted(texts=True):
        try:
            run()
        except Exception as error:
            lines.append(f"{type(error).__name__}: {error}")
    text = "\n".join(lines) + "\n"
    for pattern, word in OWN:
        text = pattern.sub(word, text)
    return text


def programs(name: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Those of one file of tests/programs."""
    module = importlib.import_module(f"tests.programs.{name}")
    for each, fn in list(vars(module).items()):  # programs add to it
        run = getattr(fn, "__program__", None)
        if run is not None and fn.__module__ == module.__name__:
            yield f"{name}.{each}", run


def models(count: int) -> list[Any]:
    """So many of the zoo's, evenly chosen; none without the packages that have them."""
    if not count:
        return []
    from tests.zoo.models import all_models

    found = all_models()
    return found[:: max(1, len(found) // count)][:count]


def _of_model(model: Any) -> Callable[[], object]:
    import torch

    import frameloom

    def run() -> None:
        torch.manual_seed(0)
        jitted = frameloom.jit(model.build().eval())
        with torch.no_grad():
            jitted(**model.inputs(0))

    return run


def write(job: tuple[str, Any, Path]) -> int:
    """In a process of its own, which begins without what others have left behind."""
    kind, what, folder = job
    warnings.simplefilter("ignore")
    import frameloom

    runs = programs(what) if kind == "programs" else [(what.key.replace("/", "."), _of_model(what))]
    count = 0
    for name, run in runs:
        frameloom.reset()
        (folder / f"{name}.txt").write_text(recorded(run))
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--only", default="", help="files of tests/programs whose name contains this"
    )
    parser.add_argument("--models", type=int, default=0, help="of the zoo (make zoo installs them)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = ROOT / "tests/programs"
    paths = sorted(folder.rglob("test_*.py"))
    names = [".".join(p.relative_to(folder).with_suffix("").parts) for p in paths]
    jobs = [("programs", name, options.folder) for name in names if options.only in name]
    jobs += [("model", model, options.folder) for model in models(options.models)]
    count = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        for done, some in enumerate(pool.imap_unordered(write, jobs), 1):
            count += some
            print(f"\r{done} of {len(jobs)} files, {count} programs", end="", file=sys.stderr)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
