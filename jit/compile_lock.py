"""The lock that lets only one thread compile at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()


def compile_lock() -> threading.RLock:
    return _lock


def _new_lock() -> None:
    """Replaces the lock in a forked child: the thread that held it does not exist there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


@contextmanager
def others_may_compile() -> Iterator[None]:
    """Releases the lock inside the `with` block.  Used around a user's backend, which may wait for a thread
    that calls jitted functions, and around compilers that run as other processes."""
    lock = _lock
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
