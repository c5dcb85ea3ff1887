"""Tries every op:  python -m tests.ops [--only add,sort] [--dtypes float32] [--forms function] [--store ops.jsonl] [--output RESULTS.md]

Each op runs in a process of its own, forked from one that has everything imported.  A process that dies or takes too long is started
again behind the case it was at, which counts as crashed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FRAMELOOM_VERIFY", "1")
os.environ.setdefault("FRAMELOOM_CACHE_BYTES", str(1 << 29))

from tests.ops.cases import DTYPES, FORMS, all_ops, units
from tests.ops.report import markdown
from tests.ops.work import do_unit

Unit = tuple[str, str, str]


def child(op: Any, wanted: list[tuple[str, str, frozenset[int]]], options: Any, pipe: Any) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)

    def starting(number: int, plainly: bool) -> None:
        pipe.send(("case", (number, plainly)))

    for dtype, form, skip in wanted:
        plain = (dtype, form) == ("float32", "function")
        limit = 0 if form == "error" else options.samples if plain else options.samples_others
        pipe.send(("unit", (dtype, form)))
        pipe.send(("done", do_unit(op, dtype, form, skip, limit, starting)))
    pipe.send(("end", None))
    pipe.close()
    os._exit(0)


class Process:
    """The child of one op."""

    def __init__(self, op: Any, wanted: list[tuple[str, str]], options: Any) -> None:
        self.op, self.options = op, options
        self.waiting = list(wanted)
        self.skip: dict[tuple[str, str], set[int]] = {}
        self.lost: dict[tuple[str, str], list[str]] = {}
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        given = [(d, f, frozenset(self.skip.get((d, f), ()))) for d, f in self.waiting]
        self.process = context.Process(
            target=child, args=(self.op, given, self.options, theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        self.unit: tuple[str, str] | None = None
        self.case, self.plainly = 0, False
        self.deadline = time.monotonic() + self.options.timeout

    def poll(self) -> Iterator[dict[str, Any]]:
        """The units that are done; sets `ended`."""
        self.ended = False
        while self.pipe.poll(0.05):
            try:
                kind, value = self.pipe.recv()
            except EOFError:
                self.process.join()
                self.again(f"the process ended with code {self.process.exitcode}")
                return
            self.deadline = time.monotonic() + self.options.timeout
            if kind == "unit":
                self.unit, self.case, self.plainly = value, -1, False
            elif kind == "case":
                self.case, self.plainly = value
            elif kind == "done":
                yield self.completed(value)
            else:
                self.process.join()
                self.ended = True
                return
        if time.monotonic() > self.deadline:
            self.process.kill()
            self.process.join()
            self.again(f"took more than {self.options.timeout:.0f} s")

    def completed(self, result: dict[str, Any]) -> dict[str, Any]:
        assert self.unit is not None
        self.waiting.remove(self.unit)
        for text in self.lost.pop(self.unit, []):
            result["cases"] += 1
            result["n_crashed"] += 1
            result["crashed"].insert(0, text)
        return result

    def again(self, reason: str) -> None:
        unit = self.unit or self.waiting[0]
        lost = self.lost.setdefault(unit, [])
        if not self.plainly:  # else it is eager that crashes, and there is nothing to compare
            where = "while building" if self.case < 0 else f"case {self.case}"
            lost.append(f"{where}: {reason}")
        self.skip.setdefault(unit, set()).add(self.case)
        if self.case < 0 or len(lost) > 20:
            self.given_up(unit)
        self.ended = not self.waiting
        if self.waiting:
            self.start()

    def given_up(self, unit: tuple[str, str]) -> None:
        self.waiting.remove(unit)
        self.options.store({
            "op": self.op.full_name, "dtype": unit[0], "form": unit[1], "cases": 0, "refused": 0, "undefined": 0, "whole": 0, "not_whole": {}, "ways": {},
            "n_wrong": 0, "wrong": [], "n_crashed": len(self.lost[unit]), "crashed": self.lost.pop(unit), "with_loops": 0, "library": [],
            "compiled_dtypes": [],
        })  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="names of ops, separated by commas; a part with * is a pattern"
    )
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument(
        "--samples",
        type=int,
        default=40,
        help="at most so many per op in float32's function form, spread over all; 0: all",
    )
    parser.add_argument(
        "--samples-others", type=int, default=5, help="... per op, dtype and other form"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=90, help="seconds for one case")
    parser.add_argument(
        "--store", default="", help="JSON lines; units that are there are not done again"
    )
    parser.add_argument("--output", default="", help="write the table there")
    options = parser.parse_args()
    store = Path(options.store) if options.store else None
    results = (
        [json.loads(line) for line in store.read_text().splitlines()]
        if store and store.exists()
        else []
    )
    known = {(r["op"], r["dtype"], r["form"]) for r in results}

    revision = describe_revision()

    def keep(result: dict[str, Any]) -> None:
        result["revision"] = revision
        results.append(result)
        if store is not None:
            with store.open("a") as file:
                file.write(json.dumps(result) + "\n")
        if result["n_wrong"] or result["n_crashed"]:
            told = (result["wrong"] + result["crashed"])[0][:160]
            print(f"{result['op']} {result['dtype']} {result['form']}: {result['n_wrong']} wrong, {result['n_crashed']} crashed of {result['cases']}: {told}", flush=True)  # fmt: skip

    options.store = keep
    queue = []
    for name, op in chosen(options.only).items():
        wanted = [
            u for u in units(op)
            if u[0] in (*options.dtypes.split(","), "any") and u[1] in options.forms.split(",") and (name, *u) not in known
        ]  # fmt: skip
        if wanted:
            queue.append((op, wanted))
    load_everything()

    total, running, started = len(queue), [], time.monotonic()
    while queue or running:
        while queue and len(running) < options.jobs:
            running.append(Process(*queue.pop(0), options))
        for process in list(running):
            for result in process.poll():
                keep(result)
            if process.ended:
                running.remove(process)
                done = total - len(queue) - len(running)
                if done % 20 == 0:
                    print(
                        f"-- {done} of {total} ops, {time.monotonic() - started:.0f} s", flush=True
                    )
    text = markdown(results, options.samples, options.samples_others)
    if options.output:
        Path(options.output).write_text(text)
    print(text.partition("## Ops")[0])
    return int(any(r["n_wrong"] or r["n_crashed"] for r in results))


def describe_revision() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def load_everything() -> None:
    """Before the first child: it costs once, and a change of the sources while this runs cannot be met halfway."""
    import frameloom
    from frameloom.capture.shapes.registry import load_rules
    from frameloom.loading import load_compiler

    load_compiler()
    load_rules()
    for module in pkgutil.walk_packages(frameloom.__path__, "frameloom."):
        if "triton_worker" not in module.name:
            importlib.import_module(module.name)


def chosen(only: str) -> dict[str, Any]:
    from fnmatch import fnmatch

    wanted = [part for part in only.split(",") if part]
    ops = all_ops()
    return {n: op for n, op in ops.items() if not wanted or any(fnmatch(n, w) for w in wanted)}


if __name__ == "__main__":
    sys.exit(main())
