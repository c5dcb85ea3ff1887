"""Debug output: log lines (FRAMELOOM_LOGS), dump folders (FRAMELOOM_DEBUG=1), timings of the stages.

Stages of the compiler do not log; `jit/pipeline.py` calls these functions around them.  Imports only the
settings.
"""

from __future__ import annotations

import json
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter  # by name: the program may replace the functions of `time`

from frameloom.config import config

_noticed: set[str] = set()


def log(topic: str, text: str) -> None:
    """Prints `text` to stderr, each line marked with the topic, if FRAMELOOM_LOGS names it."""
    if topic in config.logs:
        print("\n".join(f"[{topic}] {line}" for line in text.splitlines()), file=sys.stderr)


def notice(key: str, text: str, about: object = None) -> None:
    """Warns the user once per process and `key`.  With `about`, the key is forgotten when that object is
    freed: a key may contain its id.  If warnings are errors, the text is printed instead, because the call
    itself is fine."""
    if key not in _noticed:
        _noticed.add(key)
        if about is not None:
            weakref.finalize(about, _noticed.discard, key).atexit = False
        try:
            warnings.warn(f"frameloom: {text}", RuntimeWarning, stacklevel=_level_of_user())
        except RuntimeWarning as warning:
            print(warning, file=sys.stderr)


def _level_of_user() -> int:
    """Returns the stack level, counted from `notice`, of the first caller that is not ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "frameloom":
        level, frame = level + 1, frame.f_back
    return level


def forget_notices() -> None:
    _noticed.clear()


@dataclass
class Trail:
    """The debug output of one compile: seconds per stage and, with FRAMELOOM_DEBUG=1, a folder of dumps.

    The seconds of a stage exclude those of the stages inside it."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    folder: Path | None = None
    _inside: float = 0.0  # seconds of the stages that ended inside the current one

    def dump(self, file: str, text: str) -> None:
        """Writes one file of the dump folder.  An error of the disk becomes a warning."""
        if not config.debug:
            return
        try:
            if self.folder is None:
                self.folder = _new_folder(self.name)
            (self.folder / file).write_text(text)
        except OSError as error:
            notice("dump", f"debug files could not be written to {config.debug_dir} ({error})")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start, outside, self._inside = perf_counter(), self._inside, 0.0
        try:
            yield
        finally:
            seconds = perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds - self._inside
            self._inside = outside + seconds

    def close(self) -> None:
        total = sum(self.seconds.values())
        log("timing", f"{self.name}: {total * 1e3:.1f} ms  " + "  ".join(
            f"{stage} {seconds * 1e3:.1f}" for stage, seconds in self.seconds.items()
        ))  # fmt: skip
        if config.debug:
            self.dump("timing.json", json.dumps(self.seconds, indent=1))


def _new_folder(name: str) -> Path:
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    config.debug_dir.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        folder = config.debug_dir / f"{number:03d}_{safe}"
        if not any(config.debug_dir.glob(f"{number:03d}_*")):
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                pass
        number += 1
