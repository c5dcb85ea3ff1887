"""Settings, read from the environment once, at import.

One frozen dataclass; at most 15 fields (a test counts).  Options of a single `jit` call are not here: they live in
`jit/options.py`.  Nothing of ours is imported.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
LOG_TOPICS = frozenset({
    "breaks", "recompiles", "guards", "graph", "loops", "kernels", "bytecode", "timing", "cache", "sizes",
})  # fmt: skip


def _flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).lower() not in ("", "0", "false", "no", "off")


def _verify() -> str:
    if os.environ.get("FRAMELOOM_VERIFY", "").lower() == "structure":
        return "structure"
    return "all" if _flag("FRAMELOOM_VERIFY") else ""


def _number(name: str, default: T) -> int | T:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"{name}={text!r} is not a whole number; unset it or write e.g. {name}=8"
        ) from None


def _topics() -> frozenset[str]:
    text = os.environ.get("FRAMELOOM_LOGS", "")
    topics = frozenset(word.strip() for word in text.split(",") if word.strip())
    if "all" in topics:
        return LOG_TOPICS
    unknown = topics - LOG_TOPICS
    if unknown:
        raise ValueError(
            f"FRAMELOOM_LOGS={text!r}: unknown topic {sorted(unknown)[0]!r}; known: all, {', '.join(sorted(LOG_TOPICS))}"
        )
    return topics


def _cache_dir() -> Path:
    if text := os.environ.get("FRAMELOOM_CACHE_DIR"):
        return Path(text).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "frameloom"
    except RuntimeError:  # there is no home directory
        return Path(tempfile.gettempdir()) / f"frameloom-{os.getuid()}"


@dataclass(frozen=True)
class Config:
    """All process-wide settings, read from the environment.  Each field has its meaning beside it."""

    # `@jit` does nothing
    disable: bool = field(default_factory=lambda: _flag("FRAMELOOM_DISABLE"))
    # topics to print, comma-separated, or `all`
    logs: frozenset[str] = field(default_factory=_topics)
    # one folder of dumps per compile
    debug: bool = field(default_factory=lambda: _flag("FRAMELOOM_DEBUG"))
    # where those folders go
    debug_dir: Path = field(
        default_factory=lambda: Path(os.environ.get("FRAMELOOM_DEBUG_DIR", "frameloom_debug"))
    )
    # 1 checks the IR after every stage and compares first calls with its interpreter; `structure` only checks
    # the IR.  With both, our own bugs raise.
    verify: str = field(default_factory=_verify)
    # stop rewriting after this number of steps
    fuel: int | None = field(default_factory=lambda: _number("FRAMELOOM_FUEL", None))
    # 0 keeps nothing on disk
    cache: bool = field(default_factory=lambda: _flag("FRAMELOOM_CACHE", "1"))
    cache_dir: Path = field(default_factory=_cache_dir)
    # above it, least recently used entries are removed
    cache_bytes: int = field(default_factory=lambda: _number("FRAMELOOM_CACHE_BYTES", 2 << 30))
    # the C++ compiler, and flags; default is the first of g++, c++, clang++ on PATH
    cxx: str | None = field(default_factory=lambda: os.environ.get("CXX") or None)
    # 0 leaves calls that need gradients to plain Python
    gradients: bool = field(default_factory=lambda: _flag("FRAMELOOM_GRADIENTS", "1"))
    # 0 leaves functions that only uncaptured Python calls to plain Python
    frames: bool = field(default_factory=lambda: _flag("FRAMELOOM_FRAMES", "1"))
    # 0 builds nothing in a background thread
    background: bool = field(default_factory=lambda: _flag("FRAMELOOM_BACKGROUND", "1"))
    # a compiler that takes longer is killed
    compile_seconds: int = field(
        default_factory=lambda: _number("FRAMELOOM_COMPILE_SECONDS", 180) or 180
    )
    # compiled entries per jitted object; beyond this limit, new cases run as plain Python
    entries: int = field(default_factory=lambda: _number("FRAMELOOM_ENTRIES", 16) or 1)


config = Config()
