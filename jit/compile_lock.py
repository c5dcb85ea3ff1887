"""One thread compiles at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()


def compile_lock() -> threading.RLock:
    return _lock


def _new_lock() -> None:
    """In a forked child: whoever held the lock is not here any more."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


@contextmanager
def others_may_compile() -> Iterator[None]:
    """What runs meanwhile does without the lock: a user's backend, which may wait for a thread that calls jitted functions, and compilers that are
    other processes."""
    lock = _lock
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
