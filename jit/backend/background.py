"""Runs jobs in one background thread, one after the other.  The thread ends when there are no jobs.

A job holds the GIL like any thread.  While a job runs, the switch interval of Python is shorter than its
default: the program releases the GIL at each op, and would otherwise wait 5 ms each time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable

SWITCH = 2e-4  # seconds after which a thread that waits for the GIL gets it


class Background:
    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, job: Callable[[], None]) -> None:
        """Adds a job and returns at once.  Exceptions of a job are lost."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is None and not ends():
                thread = threading.Thread(target=self._run, name="frameloom")
                try:
                    thread.start()
                except RuntimeError:  # too many threads, or Python is about to exit
                    self._jobs.clear()
                else:
                    self._thread = thread

    def wait(self, seconds: float = 60.0) -> None:
        """Waits until all jobs are done, for at most `seconds`."""
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
    """Whether Python is about to exit; no new work starts then."""
    return not threading.main_thread().is_alive()


background = Background()


def _renew() -> None:
    """Resets the state in a forked child, where the thread does not exist."""
    background.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_renew)
