"""The command line: `python -m tests.fuzz --programs 200 --seed 0`; exit status 1 where a program fails."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first program; the others follow"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop then")
    parser.add_argument(
        "--interpret",
        action="store_const",
        const="loops",
        default="",
        help="kernels run in the reference interpreter",
    )
    parser.add_argument(
        "--triton",
        dest="interpret",
        action="store_const",
        const="triton",
        help="programs are compiled as for a GPU, and run in Triton's interpreter",
    )
    parser.add_argument(
        "--shrink", type=float, default=60.0, help="seconds for each failure; 0: not at all"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("/tmp/fuzz"), help="where scripts that fail are written"
    )
    parser.add_argument(
        "--avoid", default="", help="regular expression: templates that it is found in are left out"
    )
    options = parser.parse_args()
    from tests.ops.undefined import without_thread_caches

    without_thread_caches()
    os.environ["FUZZ_DEVICE"] = options.device
    os.environ.setdefault("FRAMELOOM_VERIFY", "1")
    os.environ.setdefault("FRAMELOOM_CACHE_DIR", str(options.out / "kernels"))
    if options.interpret == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
    from tests.fuzz import runner

    warnings.simplefilter("ignore")
    runner.prepare()
    seconds = runner.SECONDS_ON_GPU if runner.on_gpu() else runner.SECONDS
    way = runner.Way(options.interpret, seconds, options.avoid)
    began = time.time()
    until = began + 60 * options.minutes
    seeds = range(options.seed, options.seed + options.programs)
    shares = [seeds[k :: options.processes] for k in range(options.processes)]

    def share(k: int) -> tuple[int, list[runner.Verdict]]:
        return runner.campaign(shares[k], way, options.out, until, options.shrink)

    results = [share(0)] if options.processes == 1 else _side_by_side(share, options.processes)
    ran, failed = sum(r for r, _ in results), [v for _, f in results for v in f]
    for kind, count in Counter(v.kind for v in failed).most_common():
        print(f"{count:5} {kind}")
    print(
        f"{ran} programs in {time.time() - began:.0f} s, {len(failed)} wrong; scripts are in {options.out}"
    )
    sys.exit(bool(failed))


def _side_by_side(share, processes):  # type: ignore[no-untyped-def]
    """One forked process for each share; its own children are judged in turn."""
    from tests.fuzz.runner import FORK

    pipes = []
    for k in range(processes):
        ours, theirs = FORK.Pipe(duplex=False)
        FORK.Process(target=lambda k=k, out=theirs: out.send(share(k)), daemon=False).start()
        pipes.append(ours)
    return [pipe.recv() for pipe in pipes]


if __name__ == "__main__":
    main()
