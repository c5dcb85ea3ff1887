"""Warnings that one thread ignores or raises for a while, with nothing of the process changed that another thread or the program could see.

`warnings.catch_warnings` swaps the filters of all threads, and makes every module forget which of its warnings were shown.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal


class _InThread(type):
    """A category of warnings that holds all of them in one thread, and none in others."""

    thread: int | None

    def __subclasscheck__(cls, category: type) -> bool:
        return threading.get_ident() == cls.thread


# Python code's, and not those of C++ code, many of which come once per process.
OF_PYTHON = re.compile(r"(?!.*\(Triggered internally at )", re.DOTALL)


@contextmanager
def warnings_here(
    action: Literal["error", "ignore"], of: re.Pattern[str] | None = None
) -> Iterator[None]:
    """`of`: only those whose texts match."""
    category: Any = _InThread("Warning", (), {"thread": threading.get_ident()})
    entry = (action, of, category, None, 0)
    filters: Any = warnings.filters
    filters.insert(0, entry)
    try:
        yield
    finally:
        category.thread = None  # copies of the filters may outlive this
        if entry in filters:
            filters.remove(entry)
