"""Whether memory stays flat: `python -m tests.flat [--calls 60000] [--only NAME] [--limit 2]`.

Each program of `programs.py` and `training.py` runs in a process of its own.  Told are, over so many calls behind a fifth as many: growth of resident memory,
and of what Python's allocator and the C library's hold, per call.  Exit status 1 where a program grows by more than `--limit` MB.

    python -m tests.flat --tests --calls 500          # the programs of tests/programs
    python -m tests.flat --seeds 0:200 --calls 200    # random programs, kernels in the interpreter of the loop IR

These are counted exactly, jitted and plainly, and fail where they hold more than `--limit` MB / 60,000 more with each call.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import tests.flat.objects
import tests.flat.programs
import tests.flat.training  # noqa: F401
from tests.flat.growth import growth
from tests.flat.making import PROGRAMS
from tests.flat.of_tests import of_seeds, of_tests, sweep

FORK = multiprocessing.get_context("fork")


def measured(name: str, calls: int, out: Any) -> None:
    os.environ.setdefault("FRAMELOOM_LOGS", "")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    out.send(growth(PROGRAMS[name][0](), calls))
    out.close()


def in_a_process(work: Callable[..., None], *given: Any) -> Any:
    """What `work` sends; None where it dies."""
    ours, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=work, args=(*given, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return None
    finally:
        child.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=60_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--seeds", type=lambda s: range(*map(int, s.split(":"))))
    given = parser.parse_args()
    if given.tests or given.seeds:
        torch.set_num_threads(1)
        found = of_tests(given.calls, given.only) if given.tests else of_seeds(given.seeds, given.calls)  # fmt: skip
        sys.exit(sweep(found, given.calls, given.limit * 2**20 / 60_000) > 0)
    print(f"{'program':40}{'calls':>8}{'MB':>8}{'blocks':>9}{'bytes':>9}{'seconds':>9}")
    failed = 0
    for name, (_, share) in PROGRAMS.items():
        if not re.search(given.only, name):
            continue
        calls, start = int(given.calls * share), time.perf_counter()
        found = in_a_process(measured, name, calls)
        if found is None:
            print(f"{name:40} died")
            failed += 1
            continue
        grown = found.resident / 2**20
        failed += grown > given.limit
        print(
            f"{name:40}{calls:8}{grown:8.2f}{found.blocks / calls:9.3f}{found.malloced / calls:9.2f}"
            f"{time.perf_counter() - start:9.1f}{'  GROWS' if grown > given.limit else ''}",
            flush=True,
        )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
