"""Manages processes that run Triton (runtime/build/triton_worker.py): they are started before they are
needed, and get requests over pipes.

    shared_pool().prewarm(90)                   # a process starts to import Triton
    round = shared_pool().round()
    round.add(request)                          # a process starts to compile it
    answers = round.finish()                    # one (metadata, cubin) per request, in order

The processes do not import PyTorch and share no memory with this process.  A process that dies is replaced
once per kernel; one that does not answer for too long is killed; each wait has a limit.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import heapq
import importlib.util
import json
import math
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import monotonic  # by name: the program may replace the functions of `time`
from typing import IO, Any, NoReturn

from frameloom.config import config
from frameloom.errors import BuildError, KernelError
from frameloom.runtime.build.cpp_compiler import end_group

WORKERS = 16  # most workers; also at most one per CPU
CPUS_EACH = 8  # before there is work, one worker per so many CPUs is started, 1 or 2 in all
AHEAD = 3  # requests that a worker gets in advance if this process may not read its answers at once
PATIENCE_AT_START = 120.0  # seconds
_WORKER = Path(__file__).with_name("triton_worker.py")


def triton_folder() -> Path:
    """Returns the folder of the package triton without importing it; raises BuildError if it is not
    installed."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("triton")
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    raise BuildError(
        "Triton is needed to compile for CUDA devices and is not installed; run `pip install triton` "
        "(the CUDA builds of PyTorch bring it along); FRAMELOOM_DISABLE=1 runs without compiling"
    )


def triton_identity() -> str:
    """Returns all that decides the machine code besides the source: version and build of Triton, its
    assembler, and how we call it."""
    folder = triton_folder()
    match = re.search(r"^__version__ = '([^']*)'", (folder / "__init__.py").read_text(), re.M)
    parts = [match.group(1) if match else "?"]
    for library in sorted((folder / "_C").glob("libtriton*.so")):
        info = library.stat()
        parts.append(f"{info.st_size} {info.st_mtime_ns}")
    parts.append(hashlib.sha256(_WORKER.read_bytes()).hexdigest())
    for name in ("TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH", "PTXAS_OPTIONS"):
        if value := os.environ.get(name):
            parts.append(f"{name}={value}")
    return " ".join(parts)


class Dead(Exception):
    """The process has ended, or has not answered for too long; the message contains its last output."""


class Worker:
    """One process, which answers requests in order; its first answer says that it is `ready`."""

    def __init__(self, arch: int) -> None:
        folder = triton_folder().parent
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WORKER), str(folder), str(arch)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, bufsize=0,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise BuildError(f"cannot start a process for Triton: {error}") from error
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self.out = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._received = bytearray()
        self._deadline = monotonic() + PATIENCE_AT_START
        self.ready = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, request: dict[str, Any]) -> None:
        text = json.dumps(request).encode()
        rest = memoryview(struct.pack("<II", len(text), 0) + text)
        self._deadline = monotonic() + config.compile_seconds
        while rest:
            try:
                rest = rest[os.write(self._in, rest) :]
            except BlockingIOError:
                if not select.select([], [self._in], [], self.seconds_left())[1]:
                    raise Dead("it takes no input") from None
            except OSError as error:
                raise Dead(f"{error}\n{self.last_words()}") from None

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - monotonic())

    def answers(self) -> list[tuple[dict[str, Any], bytes]]:
        """Returns the complete answers, oldest first.  To be called when `out` can be read."""
        part = os.read(self.out, 1 << 20)
        if not part:
            raise Dead(self.last_words())
        received = self._received
        received += part
        complete = []
        while len(received) >= 8:
            size, extra = struct.unpack("<II", received[:8])
            end = 8 + size + extra
            if len(received) < end:
                break
            complete.append((json.loads(received[8 : 8 + size]), bytes(received[8 + size : end])))
            del received[:end]
            self._deadline = monotonic() + config.compile_seconds
        return complete

    @property
    def left(self) -> bool:
        """Whether it ended by itself because it had no work for a while; a request may have come just
        then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(0.5) == 0
        return False

    def last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._words.seek(0, os.SEEK_END)
            self._words.seek(max(0, self._words.tell() - 4000))
            words = self._words.read().decode(errors="replace").strip()
            return words or f"exit status {self.process.poll()}"
        return ""

    def end(self) -> None:
        """Kills the process if it still runs, and closes its pipes."""
        end_group(self.process)
        self.forget()

    def forget(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self._words):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


class Pool:
    """The workers of this process; only one caller at a time uses them."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._lock = threading.Lock()

    def prewarm(self, arch: int, kernels: int = 0) -> None:
        """Starts workers, so that they have imported Triton when the first kernels are generated.  `kernels`:
        about how many there will be, if known.  Never fails."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._drop_dead()
            cpus = os.cpu_count() or 1
            wanted = max(1, min(2, cpus // CPUS_EACH), min(kernels, WORKERS, cpus // 2))
            while len(self._workers) < wanted:
                self._workers.append(Worker(arch))
        except BuildError:
            pass  # `compile` reports it
        finally:
            self._lock.release()

    def round(self, tolerant: bool = False) -> Round:
        """Returns a round, which has the workers until it is finished; other callers get other workers
        meanwhile.  `tolerant`: a request that Triton rejects has the answer {"error": Triton's message}."""
        with self._lock:
            self._drop_dead()
            taken, self._workers = self._workers, []
            return Round(self, taken, tolerant)

    def give_back(self, workers: list[Worker]) -> None:
        with self._lock:
            room = WORKERS - len(self._workers)
            self._workers += workers[:room]
        for worker in workers[room:]:
            worker.end()

    def end(self) -> None:
        with self._lock:
            while self._workers:
                self._workers.pop().end()

    def _drop_dead(self) -> None:
        for worker in [w for w in self._workers if not w.alive]:
            self._workers.remove(worker)
            worker.forget()


class Round:
    """A set of requests.  Workers that are ready get work, the longest text
    first; a worker that still imports Triton may never be needed."""

    def __init__(self, pool: Pool, workers: list[Worker], tolerant: bool) -> None:
        self.pool = pool
        self.workers = workers
        self.tolerant = tolerant
        self.requests: list[dict[str, Any]] = []
        self.waiting: list[tuple[int, int]] = []  # requests without a worker, as a heap
        self.busy: dict[Worker, list[int]] = {}  # the requests of each worker, oldest first
        self.answers: dict[int, tuple[dict[str, Any], bytes]] = {}
        self.lost: set[int] = set()  # requests during which a worker died
        self.failed_starts = 0  # workers that died before they were ready
        self.failed: BuildError | None = None  # raised by `finish`

    def add(self, request: dict[str, Any], now: bool = True) -> None:
        """Adds a request; with `now`, idle workers get work.  Does not wait."""
        heapq.heappush(self.waiting, (-_length(request), len(self.requests)))
        self.requests.append(request)
        if now:
            self._start_workers()
            self.go_on(1)

    def go_on(self, each: int = AHEAD) -> None:
        """Reads available answers, and gives each ready worker up to `each` requests.  Does not wait."""
        if self.failed is None:
            self._collect(0.0)
            self._hand_out(each)

    @property
    def unanswered(self) -> int:
        return len(self.requests) - len(self.answers)

    def finish(self) -> list[tuple[dict[str, Any], bytes]]:
        """Waits for all answers and returns them in the order of the requests; raises KernelError with
        Triton's message for the first that fails, unless `tolerant`."""
        try:
            if self.failed is not None:
                raise self.failed
            self._start_workers()
            while self.unanswered:
                self._hand_out()
                self._collect()
        finally:
            self.close()
        return [self.answers[i] for i in range(len(self.requests))]

    def close(self) -> None:
        """Gives the workers back to the pool."""
        workers, self.workers = self.workers, []
        for worker in self.busy:  # their answers are not needed
            worker.end()
            workers.remove(worker)
        self.busy.clear()
        self.pool.give_back(workers)

    def _start_workers(self) -> None:
        while len(self.workers) < min(self.unanswered, WORKERS, os.cpu_count() or 1):
            self.workers.append(Worker(self.requests[0]["arch"]))

    def _hand_out(self, each: int = 1) -> None:
        for count in range(each):
            for worker in [
                w for w in self.workers if w.ready and len(self.busy.get(w, ())) <= count
            ]:
                if not self.waiting:
                    return
                _, number = heapq.heappop(self.waiting)
                self.busy.setdefault(worker, []).append(number)
                try:
                    worker.ask(self.requests[number])
                except Dead as dead:
                    self._replace(worker, dead)

    def _collect(self, most: float = math.inf) -> None:
        """Reads available answers; waits for one for at most `most` seconds."""
        watched = [w for w in self.workers if w in self.busy or not w.ready]
        seconds = min((w.seconds_left() for w in watched), default=0.0)
        seconds = min(seconds, most)
        readable = select.select([w.out for w in watched], [], [], seconds)[0]
        for worker in watched:
            try:
                answers = worker.answers() if worker.out in readable else []
                if not answers and not worker.seconds_left():
                    raise Dead("no answer for too long")
            except Dead as dead:
                self._replace(worker, dead)
                continue
            for answer in answers:
                if not worker.ready:
                    worker.ready = True
                    continue
                number = self.busy[worker].pop(0)
                if not self.busy[worker]:
                    del self.busy[worker]
                if "error" in answer[0] and not self.tolerant:
                    self._fail(KernelError(_message(answer[0]["error"], self.requests[number])))
                self.answers[number] = answer

    def _fail(self, error: BuildError) -> NoReturn:
        self.failed = error
        raise error

    def _replace(self, worker: Worker, dead: Dead) -> None:
        self.workers.remove(worker)
        asked = self.busy.pop(worker, [])
        left = bool(asked) and worker.left
        worker.end()
        for number in asked if left else asked[1:]:  # those that it had not started
            heapq.heappush(self.waiting, (-sys.maxsize, number))
        number = asked[0] if asked else None
        if left:
            pass
        elif number is None:
            self.failed_starts += 1
            if self.failed_starts > 1:
                self._fail(BuildError(f"Triton cannot be started in a process of its own: {dead}"))
        elif number in self.lost:
            error = f"the process that runs Triton died: {dead}"
            if not self.tolerant:
                self._fail(KernelError(_message(error, self.requests[number])))
            self.answers[number] = {"error": error}, b""
        else:
            self.lost.add(number)
            heapq.heappush(self.waiting, (-sys.maxsize, number))  # first
        self.workers.append(Worker(self.requests[0]["arch"]))


def _length(request: dict[str, Any]) -> int:
    """Returns a measure of a request's time: long ones should not start last."""
    return len(request["text"])


def _message(error: str, request: dict[str, Any]) -> str:
    lines = error.strip().splitlines()
    return "Triton failed:\n" + "\n".join(lines[:40]) + f"\n\nin this source:\n{request['text']}"


_shared: Pool | None = None


def shared_pool() -> Pool:
    global _shared
    if _shared is None:
        _shared = Pool()
    return _shared


@atexit.register
def _end_pool() -> None:
    if _shared is not None:
        _shared.end()


def _forget_pool() -> None:
    """Forgets the pool in a forked child: the workers answer the parent."""
    global _shared
    _shared = None


os.register_at_fork(after_in_child=_forget_pool)
