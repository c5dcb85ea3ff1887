"""Ignores or raises warnings in one thread only, without a change that other threads or the program can see.

`warnings.catch_warnings` replaces the filters of all threads, and makes every module forget which of its
warnings were shown.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal


class _InThread(type):
    """A warning category that contains all warnings in one thread, and none in others."""

    thread: int | None

    def __subclasscheck__(cls, category: type) -> bool:
        return threading.get_ident() == cls.thread


# Warnings of Python code, not those of C++ code, many of which come once per process.
OF_PYTHON = re.compile(r"(?!.*\(Triggered internally at )", re.DOTALL)


@contextmanager
def warnings_here(
    action: Literal["error", "ignore"], of: re.Pattern[str] | None = None
) -> Iterator[None]:
    """Ignores or raises the warnings of this thread. `of`: only those whose text matches."""
    category: Any = _InThread("Warning", (), {"thread": threading.get_ident()})
    entry = (action, of, category, None, 0)
    filters: Any = warnings.filters
    filters.insert(0, entry)
    try:
        yield
    finally:
        category.thread = None  # copies of the filters may live longer
        if entry in filters:
            filters.remove(entry)
