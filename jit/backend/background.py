"""Work beside the program: one thread that takes jobs in turn, and ends when there are none.

A job holds Python's lock as any thread does.  While one runs, threads take that from each other sooner than by default: the program, which lets go of it
at every op, would otherwise wait 5 ms each time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable

SWITCH = 2e-4  # seconds after which a thread that wants Python's lock is given it


class Background:
    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, job: Callable[[], None]) -> None:
        """Never waits for a job.  What a job raises is lost."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is None and not ends():
                thread = threading.Thread(target=self._run, name="frameloom")
                try:
                    thread.start()
                except RuntimeError:  # the system or a Python that ends has none left
                    self._jobs.clear()
                else:
                    self._thread = thread

    def wait(self, seconds: float = 60.0) -> None:
        """Until every job is done."""
        if (thread := self._thread) is not None:
            thread.join(seconds)

    def _run(self) -> None:
        before = sys.getswitchinterval()
        now = min(before, SWITCH)
        sys.setswitchinterval(now)
        now = sys.getswitchinterval()
        try:
            while (job := self._next()) is not None:
                job()
        finally:
            if sys.getswitchinterval() == now:  # the program may have set another
                sys.setswitchinterval(before)

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._jobs and not ends():
                return self._jobs.popleft()
            self._jobs.clear()
            self._thread = None
            return None


def ends() -> bool:
    """Whether Python is about to end: nothing more is begun."""
    return not threading.main_thread().is_alive()


background = Background()


def _renew() -> None:
    """In a forked child: the thread is not there any more."""
    background.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_renew)
