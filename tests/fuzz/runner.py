"""Draws and judges many programs in processes that may die or hang; what fails is judged again by itself, shrunk, and written to a folder."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

BATCH = 20  # programs that share a process
BATCH_ON_GPU = (
    200  # there, a process starts anew: nobody can go on with a device that its parent has used
)
SECONDS = 60.0  # for one program
SECONDS_ON_GPU = 240.0  # where compilers of several processes are waited for
QUIET = 60.0  # after which it is said where a program is that may take longer
GIGABYTES = 6
TAIL = 8000  # characters of what a child that hangs tells: the stacks of its threads
UNDRAWN = "undrawn"
FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")
Item = tuple[int, str | None]  # seed and script; None: to be drawn


@dataclass(frozen=True)
class Verdict:
    """What became of a program: kind "" where nothing differs, UNDRAWN where plain calls end the process."""

    seed: int
    kind: str
    text: str
    script: str = ""


@dataclass(frozen=True)
class Way:
    """How programs are run."""

    interpret: str = ""  # what runs kernels in place of compiled code: "loops", "triton"
    seconds: float = SECONDS
    avoid: str = ""
    plain: bool = False  # plain calls alone, which are not judged


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
            if verdict.kind == UNDRAWN and done:
                verdict = _undrawn_alone(verdict, batch[:done], way)
            stopped = verdict.kind.startswith(("hang", "crash"))
            if stopped and judged_alone(verdict.script, replace(way, plain=True))[0]:
                verdict = Verdict(verdict.seed, UNDRAWN, "plain calls do not end well, either")
            done += 1
            yield verdict
        left = left[max(done, 1) :]


def _undrawn_alone(verdict: Verdict, before: Sequence[int], way: Way) -> Verdict:
    """Whether plain calls alone end the process, or only behind the programs that were judged before."""
    again = next(_in_process([(verdict.seed, None)], way))
    if again.kind:
        return again
    return Verdict(verdict.seed, "crash behind others", f"behind {list(before)}: {verdict.text}")


def on_gpu() -> bool:
    return os.environ.get("FUZZ_DEVICE", "cpu") != "cpu"


def _in_process(items: Sequence[Item], way: Way) -> Iterator[Verdict]:
    """Verdicts from a fresh process, up to the first program that kills it or hangs, or behind which the device does nothing more."""
    context = SPAWN if on_gpu() else FORK
    ours, theirs = context.Pipe(duplex=False)
    told = tempfile.NamedTemporaryFile()
    child = context.Process(target=_work, args=(items, theirs, told.name, way), daemon=True)
    child.start()
    theirs.close()
    seed, script = items[0][0], None
    try:
        while True:
            if not ours.poll(min(way.seconds, QUIET)):
                os.kill(child.pid, signal.SIGUSR1)  # it tells where it is
                child.join(1)
                if way.seconds > QUIET:
                    place = told.read().decode(errors="replace")[-TAIL:]
                    print(f"{seed}: no answer for {QUIET} s so far\n{place}", flush=True)
                    if ours.poll(way.seconds - QUIET):
                        continue
                kind, text = "hang", f"no answer for {way.seconds} s"
                break
            try:
                message = ours.recv()
            except EOFError:
                child.join()
                code = child.exitcode or 0
                name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                kind, text = f"crash {name}", "the process died"
                break
            if message is None:
                return
            if isinstance(message, Verdict):
                yield message
            else:
                seed, script = message
        text += "".join(
            f"\n  {line}" for line in told.read().decode(errors="replace")[-TAIL:].splitlines()
        )
        yield Verdict(seed, kind if script is not None else UNDRAWN, text, script or "")
    finally:
        child.kill()
        child.join()
        ours.close()
        told.close()


def _work(items: Sequence[Item], out: Connection, told: str, way: Way) -> None:
    """The child: says what it is about to do, does it, says what came of it."""
    output = os.open(told, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    if on_gpu():
        prepare()
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, 2)
    limit = GIGABYTES << 30
    if not on_gpu():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for seed, script in items:
        os.ftruncate(output, 0)
        out.send((seed, script))
        out.send(_judged(seed, script, way, out))
        if not _device_works():
            break
    out.send(None)
    out.close()
    os._exit(0)


def _judged(seed: int, script: str | None, way: Way, out: Connection) -> Verdict:
    from tests.fuzz.grammar import Program
    from tests.fuzz.interpret import within
    from tests.fuzz.judge import DeviceStopped, judge, run_plainly

    try:
        if script is None:
            script = Program(seed, way.avoid).text
            out.send((seed, script))
        if way.plain:
            run_plainly(script)
            return Verdict(seed, "", "")
        with within(way.interpret):
            found = judge(script)
    except DeviceStopped as error:
        return Verdict(seed, UNDRAWN, str(error))
    except MemoryError:
        raise  # whatever follows in this process lacks it, too
    except Exception as error:
        kind = f"judge: {type(error).__name__}"
        return Verdict(seed, kind, traceback.format_exc()[-2000:], script or "")
    return Verdict(seed, "", "") if found is None else Verdict(seed, found.kind, str(found), script)


def _device_works() -> bool:
    """After an assertion on the GPU, all that follows in its process fails."""
    from tests.fuzz.support import settle

    try:
        settle()
    except RuntimeError:
        return False
    return True


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

    # The first optimizer imports PyTorch's own compiler: seconds, in which a trial that is out of time leaves half a module.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
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
        ran += verdict.kind != UNDRAWN
        if verdict.kind not in ("", UNDRAWN):
            failed.append(verdict)
            kinds[verdict.kind] = kinds.get(verdict.kind, 0) + 1
            print(f"{verdict.seed}: {verdict.kind}: {verdict.text[:300]}", flush=True)
            _keep(verdict, way, folder, shrinking if kinds[verdict.kind] < 8 else 0, shrunk)
        if time.time() > until:
            break
    return ran, failed


def _keep(verdict: Verdict, way: Way, folder: Path, seconds: float, shrunk: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{verdict.seed}.py"
    told = "".join(f"# {line}\n" for line in f"{verdict.kind}: {verdict.text}".splitlines())
    path.write_text(f"{verdict.script}\n{told}")
    if not verdict.script or not seconds:
        return
    kind, _ = judged_alone(verdict.script, way)
    if not kind:
        print(f"{verdict.seed}: not by itself", flush=True)
        return
    small, text = shrunk(verdict.script, kind, way, seconds)
    quoted = "".join(f"# {line}\n" for line in text[:600].splitlines())
    (folder / f"{verdict.seed}_small.py").write_text(f"{quoted}{small}\n")
