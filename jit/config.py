"""Settings, read from the environment once, at import.

One frozen dataclass; at most 15 fields (a test counts).  Options of a single `jit` call are not here: they live in
`jit/options.py`.  Nothing of ours is imported.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

LOG_TOPICS = frozenset(
    [
        "breaks",
        "recompiles",
        "guards",
        "graph",
        "loops",
        "kernels",
        "bytecode",
        "timing",
        "cache",
        "sizes",
    ]
)


def _flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).lower() not in ("", "0", "false", "no", "off")


def _verify() -> str:
    if os.environ.get("FRAMELOOM_VERIFY", "").lower() == "structure":
        return "structure"
    return "all" if _flag("FRAMELOOM_VERIFY") else ""


def _number(name: str, default: int | None) -> int | None:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"{name}={text!r} is not a whole number; unset it or write e.g. {name}=8"
        ) from None


def _topics(text: str) -> frozenset[str]:
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
    """All process-wide settings.  Each field has its environment variable, meaning and default beside it."""

    disable: bool = False  # FRAMELOOM_DISABLE: `@jit` does nothing
    logs: frozenset[str] = frozenset()  # FRAMELOOM_LOGS: topics to print, comma-separated, or `all`
    debug: bool = False  # FRAMELOOM_DEBUG: one folder of dumps per compile
    debug_dir: Path = Path("frameloom_debug")  # FRAMELOOM_DEBUG_DIR: where those folders go
    # FRAMELOOM_VERIFY: 1 checks the IR after every stage and compares first calls with its interpreter;
    # `structure` only checks the IR.  With both, our own bugs raise.
    verify: str = ""
    fuel: int | None = None  # FRAMELOOM_FUEL: stop rewriting after this number of steps
    cache: bool = True  # FRAMELOOM_CACHE: 0 keeps nothing on disk
    cache_dir: Path = Path("~/.cache/frameloom")  # FRAMELOOM_CACHE_DIR
    # FRAMELOOM_CACHE_BYTES: above it, least recently used entries are removed
    cache_bytes: int = 2 << 30
    # CXX: the C++ compiler, and flags; default is the first of g++, c++, clang++ on PATH
    cxx: str | None = None
    # FRAMELOOM_GRADIENTS: 0 leaves calls that need gradients to plain Python
    gradients: bool = True
    # FRAMELOOM_FRAMES: 0 leaves functions that only uncaptured Python calls to plain Python
    frames: bool = True
    background: bool = True  # FRAMELOOM_BACKGROUND: 0 builds nothing in a background thread
    compile_seconds: int = 180  # FRAMELOOM_COMPILE_SECONDS: a compiler that takes longer is killed
    # FRAMELOOM_ENTRIES: compiled entries per jitted object; beyond this limit, new cases run as plain Python
    entries: int = 16

    @staticmethod
    def from_environment() -> Config:
        return Config(
            disable=_flag("FRAMELOOM_DISABLE"),
            logs=_topics(os.environ.get("FRAMELOOM_LOGS", "")),
            debug=_flag("FRAMELOOM_DEBUG"),
            debug_dir=Path(os.environ.get("FRAMELOOM_DEBUG_DIR", "frameloom_debug")),
            verify=_verify(),
            fuel=_number("FRAMELOOM_FUEL", None),
            cache=_flag("FRAMELOOM_CACHE", "1"),
            frames=_flag("FRAMELOOM_FRAMES", "1"),
            background=_flag("FRAMELOOM_BACKGROUND", "1"),
            gradients=_flag("FRAMELOOM_GRADIENTS", "1"),
            cache_dir=_cache_dir(),
            cache_bytes=_number("FRAMELOOM_CACHE_BYTES", 2 << 30) or 0,
            cxx=os.environ.get("CXX") or None,
            compile_seconds=_number("FRAMELOOM_COMPILE_SECONDS", 180) or 180,
            entries=_number("FRAMELOOM_ENTRIES", 16) or 1,
        )


config = Config.from_environment()
