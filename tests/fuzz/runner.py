"""Draws and judges many programs in processes that may die or hang; what fails is judged again by itself, shrunk, and written to a folder."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

BATCH = 20  # programs that share a process
BATCH_ON_GPU = (
    200  # there, a process starts anew: nobody can go on with a device that its parent has used
)
SECONDS = 60.0  # for one program
GIGABYTES = 12
FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")
Item = tuple[int, str | None]  # seed and script; None: to be drawn


@dataclass(frozen=True)
class Verdict:
    """What became of a program: kind "" where nothing differs."""

    seed: int
    kind: str
    text: str
    script: str = ""


@dataclass(frozen=True)
class Way:
    """How programs are run."""

    interpret: bool = False
    seconds: float = SECONDS
    avoid: str = ""


def judged_alone(script: str, way: Way) -> tuple[str, str]:
    """Kind and text of what differs, found in a process of its own."""
    for verdict in _in_process([(0, script)], way):
        return verdict.kind, verdict.text
    return "", ""


def run(seeds: Sequence[int], way: Way) -> Iterator[Verdict]:
    """One verdict per seed."""
    left = list(seeds)
    while left:
        done = 0
        batch = left[: BATCH_ON_GPU if on_gpu() else BATCH]
        for verdict in _in_process([(seed, None) for seed in batch], way):
            done += 1
            yield verdict
        left = left[max(done, 1) :]


def on_gpu() -> bool:
    return os.environ.get("FUZZ_DEVICE", "cpu") != "cpu"


def _programs(items: Sequence[Item], avoid: str) -> Iterator[tuple[int, str]]:
    from tests.fuzz.grammar import Program

    for seed, script in items:
        yield seed, Program(seed, avoid).text if script is None else script


def _in_process(items: Sequence[Item], way: Way) -> Iterator[Verdict]:
    """Verdicts from a fresh process, up to the first program that kills it or hangs."""
    context = SPAWN if on_gpu() else FORK
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(items, theirs, way), daemon=True)
    child.start()
    theirs.close()
    seed, script = -1, ""
    try:
        while True:
            if not ours.poll(way.seconds):
                yield Verdict(seed, "hang", f"no answer for {way.seconds} s", script)
                return
            try:
                message = ours.recv()
            except EOFError:
                break
            if message is None:
                return
            if isinstance(message, Verdict):
                script = ""
                yield message
            else:
                seed, script = message
        child.join()
        code = child.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        yield Verdict(seed, f"crash {name}", "the process died", script)
    finally:
        child.kill()
        child.join()
        ours.close()


def _work(items: Sequence[Item], out: Connection, way: Way) -> None:
    """The child: says what it is about to do, does it, says what came of it."""
    faulthandler.disable()
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    limit = GIGABYTES << 30
    if not on_gpu():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from tests.fuzz.interpret import interpreted
    from tests.fuzz.judge import judge

    for seed, script in _programs(items, way.avoid):
        out.send((seed, script))
        try:
            with interpreted() if way.interpret else contextlib.nullcontext():
                found = judge(script)
        except Exception as error:
            kind, text = f"judge: {type(error).__name__}", traceback.format_exc()[-2000:]
        else:
            kind, text = ("", "") if found is None else (found.kind, str(found))
        out.send(Verdict(seed, kind, text, script if kind else ""))
    out.send(None)
    out.close()
    os._exit(0)


WARM_UP = """\
import torch
def fn(x):
    return torch.nn.functional.layer_norm(x.sin(), (3,)).sum()
def arguments():
    return torch.ones(2, 3, requires_grad=True),
STEPS = [(arguments, "", None), (arguments, "no_grad", None)]
OPTIONS = {}
"""


def prepare() -> None:
    """What all children need is imported once; nothing here starts a thread or touches a GPU."""
    import torch

    torch.set_num_threads(1)
    from tests.fuzz import grammar  # noqa: F401
    from tests.fuzz.interpret import interpreted
    from tests.fuzz.judge import judge

    if on_gpu():
        return
    with interpreted():
        judge(WARM_UP)


def campaign(
    seeds: Sequence[int], way: Way, folder: Path, until: float, shrinking: float
) -> tuple[int, list[Verdict]]:
    """Runs all, tells of failures as they come; the number of programs that ran, and what failed."""
    from tests.fuzz.shrink import shrunk

    failed: list[Verdict] = []
    ran = 0
    kinds: dict[str, int] = {}
    for verdict in run(seeds, way):
        ran += 1
        if verdict.kind:
            failed.append(verdict)
            kinds[verdict.kind] = kinds.get(verdict.kind, 0) + 1
            print(f"{verdict.seed}: {verdict.text[:300]}", flush=True)
            _keep(verdict, way, folder, shrinking if kinds[verdict.kind] < 8 else 0, shrunk)
        if time.time() > until:
            break
    return ran, failed


def _keep(verdict: Verdict, way: Way, folder: Path, seconds: float, shrunk: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{verdict.seed}.py"
    path.write_text(verdict.script)
    if not verdict.script or not seconds:
        return
    kind, _ = judged_alone(verdict.script, way)
    if not kind:
        print(f"{verdict.seed}: not by itself", flush=True)
        return
    small, text = shrunk(verdict.script, kind, way, seconds)
    quoted = "".join(f"# {line}\n" for line in text[:600].splitlines())
    (folder / f"{verdict.seed}_small.py").write_text(f"{quoted}{small}\n")
