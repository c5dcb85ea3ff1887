"""Tries every model of the zoo:  python -m tests.zoo [--only TEXT,TEXT] [--train] [--backend eager] [--jobs 2] [--output RESULTS.md]

Each model runs in a process of its own, forked from one that has imported the packages, with a limit on time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("FRAMELOOM_VERIFY", "0")

from tests.zoo.models import Model, all_models
from tests.zoo.report import markdown, training
from tests.zoo.torchvision_ops import declare
from tests.zoo.trial import Result, train_model, try_model

HERE = Path(__file__).parent


def child(model: Model, backend: str | None, train: bool, connection: Any) -> None:
    warnings.simplefilter("ignore")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    connection.send(train_model(model) if train else try_model(model, backend))
    connection.close()
    os._exit(0)


def run(
    model: Model, backend: str | None, train: bool, seconds: float
) -> tuple[Any, Any, float, Model]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(model, backend, train, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours, time.monotonic() + seconds, model


def result_of(running: tuple[Any, Any, float, Model]) -> Result | None:
    """The result of a running trial once it is there or its time is up."""
    process, connection, deadline, model = running
    if connection.poll(0.05):
        try:
            result: Result = connection.recv()
        except EOFError:
            process.join(5)
            result = Result(
                model.key, model.kind, "failed", f"the process ended with code {process.exitcode}"
            )
    elif time.monotonic() > deadline:
        result = Result(model.key, model.kind, "failed", "the time is up")
    else:
        return None
    process.kill()
    process.join()
    return result


def line(result: Result, train: bool) -> str:
    """What came of one model."""
    text = f"{result.state:7} {result.key:45} {result.first:6.1f} s  "
    if train and result.graphs:
        text += f"{result.graphs} forward, {result.backward} backward  "
    if train and not result.whole and not result.reason and result.breaks:
        return text + " ".join(result.breaks[0].split())[:250]
    return text + result.reason[:150]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        default="",
        help="models whose name contains one of these, separated by commas; - for none",
    )
    parser.add_argument(
        "--backend", default=None, help="eager: only capture, run the graph as it is"
    )
    parser.add_argument(
        "--train", action="store_true", help="training steps, not calls: gradients and buffers, too"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=180)
    parser.add_argument(
        "--json", default="", help="write all results with tracebacks there as they come"
    )
    parser.add_argument("--output", default="", help="write the table there")
    parser.add_argument(
        "--known", default="", help="files written by --json: models not run now are told from them"
    )
    parser.add_argument("--notes", default="", help="what the table says about how it was made")
    options = parser.parse_args()

    declare()
    from frameloom.loading import load_compiler

    load_compiler()
    from frameloom.capture.shapes.registry import load_rules

    load_rules()

    models = all_models()
    parts = options.only.split(",")
    wanted = [m for m in models if any(part in m.key for part in parts) and parts != ["-"]]
    import importlib

    for package in {m.package for m in wanted}:
        importlib.import_module(package)
    results: list[Result] = []
    waiting, running = list(wanted), []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            running.append(run(waiting.pop(0), options.backend, options.train, options.timeout))
        for trial in list(running):
            result = result_of(trial)
            if result is not None:
                running.remove(trial)
                results.append(result)
                if options.json:
                    Path(options.json).write_text(
                        json.dumps([asdict(r) for r in results], indent=1)
                    )
                print(f"{len(results)}/{len(wanted)} {line(result, options.train)}", flush=True)
    own = {r.key for r in results}
    for file in reversed(list(filter(None, options.known.split(",")))):
        known = [Result(**fields) for fields in json.loads(Path(file).read_text())]
        results += [r for r in known if r.key not in own]
        own.update(r.key for r in known)
    order = {m.key: i for i, m in enumerate(models)}
    results.sort(key=lambda r: order[r.key])
    if options.output:
        notes = options.notes
        table = training(results, notes) if options.train else markdown(results, "make zoo", notes)
        Path(options.output).write_text(table)
    passed = sum(r.state == "passed" for r in results)
    print(f"{passed} of {len(results)} passed")
    if options.train:
        tried = [r for r in results if r.state != "unbuilt"]
        whole = sum(r.whole for r in tried)
        print(f"{whole} of {len(tried)} in one graph forward and backward")
    return 0


if __name__ == "__main__":
    sys.exit(main())
