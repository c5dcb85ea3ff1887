"""Tries programs while they are drawn: whether plain calls of them end, soon, and with little."""

from __future__ import annotations

import contextlib
import io
import resource
import signal
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from tests.fuzz import support

SMALL = 60  # items of a container at most
ELEMENTS = 2000
SECONDS = 2
BYTES = 1 << 30  # more than there were


def runs(text: str, allowed: int) -> bool:
    """Whether the first calls of a script end without an exception, but for `allowed` of them, and what they give is not large."""
    failed = 0
    with quiet(), time_limit(SECONDS), memory_limit(BYTES):
        try:
            space: dict[str, Any] = {"__name__": "trial"}
            exec(compile(text, "<trial>", "exec", dont_inherit=True), space)
            for arguments, _, _ in space["STEPS"][:3]:
                failed += not _passes(space, arguments)
        except (SyntaxError, TooMuch):
            return False
    return failed <= allowed


def _passes(space: dict[str, Any], arguments: Any) -> bool:
    given = arguments()
    try:
        result = space["fn"](*given)
    except TooMuch:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            raise TooMuch from error  # a GPU may have as much, and its judge not the time
        return False
    return _small([given, result, space["log"], vars(space["holder"])], 3)


def _small(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() < ELEMENTS
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 1 << 70
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set) and depth:
        return len(value) < SMALL and all(_small(v, depth - 1) for v in value)
    return True


@contextlib.contextmanager
def on_the_cpu() -> Iterator[None]:
    """Programs are drawn there: what asserts on a GPU would end the process."""
    with mock.patch.object(support, "DEVICE", "cpu"), torch.device("cpu"):
        yield


class TooMuch(BaseException):
    """A trial takes too long, or too much memory."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooMuch

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """No signal ends a call that fills a tensor of terabytes."""
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[5])  # of data and stack
    limit = pages * resource.getpagesize() + more
    if before != resource.RLIM_INFINITY:
        limit = min(limit, before)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    out = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        warnings.simplefilter("ignore")
        yield
