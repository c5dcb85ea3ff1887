"""`differences(fn, *arguments)`: what a jitted call does otherwise than the plain one, in rules of Python alone: results by type and text, exceptions with
their arguments, causes, contexts and notes, and the order in which special methods were called (`LOG`).

It is cheap enough for sweeps over thousands of small programs: graphs run as they were recorded.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import torch

from frameloom import jit

LOG: list[Any] = []
X = torch.ones(2)


def differences(fn: Any, make: Any, calls: int = 1) -> str:
    """Empty, or both sides as text; `make` gives the arguments for each call."""
    plain = [_outcome(fn, make()) for _ in range(calls)]
    jitted_fn = jit(fn, backend="eager")
    jitted = [_outcome(jitted_fn, make()) for _ in range(calls)]
    return "" if plain == jitted else f"plain  {plain}\njitted {jitted}"


def _outcome(fn: Any, arguments: Any) -> Any:
    LOG.clear()
    try:
        result = ("returned", shown(fn(*arguments)))
    except Exception as error:
        result = ("raised", shown_error(error))
    return result, list(LOG)


def shown(value: Any, depth: int = 0) -> Any:
    if depth > 6:
        return "..."
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.tolist()
    if type(value) in (list, tuple, deque):
        return type(value).__name__, [shown(item, depth + 1) for item in value]
    if isinstance(value, dict):
        items = [(shown(k, depth + 1), shown(v, depth + 1)) for k, v in value.items()]
        return type(value).__name__, items
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(map(repr, value))
    if isinstance(value, BaseException):
        return shown_error(value, depth + 1)
    if isinstance(value, int | float | str | bytes | complex | None | range | slice):
        return type(value).__name__, re.sub("0x[0-9a-f]+", "0x", repr(value))
    return type(value).__qualname__


def shown_error(error: BaseException | None, depth: int = 0) -> Any:
    if error is None or depth > 5:
        return None
    chain = [shown_error(e, depth + 1) for e in (error.__cause__, error.__context__)]
    notes = getattr(error, "__notes__", None)
    given = [shown(a, depth + 1) for a in error.args]
    return type(error).__name__, given, chain, error.__suppress_context__, notes
