"""python -m tests.exhaustive [--only NAME] [--some N]: every case of every space, and what came of it.  Exit status 1 where one is wrong."""

from __future__ import annotations

import argparse
import sys
import time

from tests.exhaustive import indices
from tests.exhaustive.spaces import Tally


def main() -> None:
    from tests.exhaustive import rules, sizes

    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive")
    parser.add_argument("--only", default="", help="spaces with this in their names")
    parser.add_argument("--some", type=int, help="so many cases of each, picked by --seed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    status = 0
    for space in (*indices.SPACES, *sizes.SPACES, *rules.SPACES):
        if options.only not in space.name:
            continue
        start = time.perf_counter()
        cases = space.all() if options.some is None else space.some(options.some, options.seed)
        tally = Tally().add(space, cases)
        seconds = time.perf_counter() - start
        print(
            f"{space.name}: {tally.checked} cases, {tally.skipped} without anything to check, {tally.wrong} wrong, {seconds:.0f} s",
            flush=True,
        )
        if tally.wrong:
            print(f"    {tally.first}", flush=True)
            status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
