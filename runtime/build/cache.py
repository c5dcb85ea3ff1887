"""The cache on disk: one regular file per key, in a directory that only its owner can write.

Keys are hex digests of all that decides the content; callers compute them.  A file is written under a
temporary name and renamed, so that a reader sees a whole file or none.  A file that does not end in its own
checksum is removed and built again.  Nothing here is ever unpickled.  If the directory cannot be used, a
private temporary directory replaces it until the process ends, with one notice.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from frameloom.config import config
from frameloom.debug import log

_log = logging.getLogger("frameloom.cache")
_TRAILER = 8 + 32  # magic and SHA-256 of all bytes before
_MAGIC = b"frmloom1"


def digest(*parts: str | bytes) -> str:
    """Returns a hex digest of the parts; it depends on their boundaries."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()[:40]


class DiskCache:
    """`path(key, suffix)` finds an entry and returns its path or None; `put(key, suffix, data)` makes one and
    returns its path."""

    def __init__(self, directory: Path | None, limit: int) -> None:
        """`directory`: None for a temporary one, which is removed when the process ends."""
        self.limit = limit
        usable = directory and _usable(directory)
        self.persistent = usable is not None
        self.directory = usable or self._temporary()
        if directory is not None and usable is None:
            self._tell(directory)
        self._lock = threading.Lock()
        self._written = 0
        self._checked: set[Path] = set()

    def _temporary(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="frameloom-"))
        weakref.finalize(self, _remove, folder, os.getpid())
        return folder

    def _tell(self, wanted: Path) -> None:
        _log.warning(
            "frameloom: cannot use the cache directory %s; kernels are kept in %s until this process ends",
            wanted, self.directory,
        )  # fmt: skip

    def path(self, key: str, suffix: str) -> Path | None:
        """Returns the file of an entry if it exists and is whole."""
        path = self._place(key, suffix)
        if path in self._checked and path.exists():
            return path
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if not _whole(data):
            log("cache", f"{key}: damaged; building it again")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # `trim` removes the least recently used files
        self._checked.add(path)
        return path

    def put(self, key: str, suffix: str, data: bytes) -> Path:
        """Writes the entry, if necessary to a temporary directory, so that only a full /tmp raises
        OSError."""
        try:
            path = self._write(key, suffix, data)
        except OSError:
            if not self.persistent:
                raise
            wanted, self.directory, self.persistent = self.directory, self._temporary(), False
            self._tell(wanted)
            path = self._write(key, suffix, data)
        self._checked.add(path)
        with self._lock:
            self._written += len(data)
            crowded = self._written > self.limit // 16
            if crowded:
                self._written = 0
        if crowded:
            self.trim()
        return path

    def get(self, key: str, suffix: str) -> bytes | None:
        """Returns the bytes given to `put`."""
        path = self.path(key, suffix)
        try:
            return path.read_bytes()[:-_TRAILER] if path else None
        except OSError:
            return None

    def file(self, key: str, suffix: str, make: Callable[[], bytes]) -> Path:
        return self.path(key, suffix) or self.put(key, suffix, make())

    def remove(self, key: str, suffix: str) -> None:
        path = self._place(key, suffix)
        self._checked.discard(path)
        with contextlib.suppress(OSError):
            path.unlink()

    def trim(self) -> None:
        """Removes the least recently used entries until the directory is below its limit."""
        entries = []
        for path in self.directory.glob("??/*"):
            try:
                info = path.stat()
            except OSError:
                continue
            entries.append((info.st_mtime, info.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            try:
                path.unlink()
                total -= size
            except OSError:
                continue

    def _place(self, key: str, suffix: str) -> Path:
        return self.directory / key[:2] / (key[2:] + suffix)

    def _write(self, key: str, suffix: str, data: bytes) -> Path:
        path = self._place(key, suffix)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as out:
                # A shared library may have bytes after its end, because loaders follow its headers.
                out.write(data)
                out.write(_MAGIC + hashlib.sha256(data).digest())
            os.chmod(temporary, 0o700)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return path


def _remove(directory: Path, owner: int) -> None:
    """Removes the directory, but not in a forked child of the process that made it."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


def _whole(data: bytes) -> bool:
    body, trailer = data[:-_TRAILER], data[-_TRAILER:]
    return trailer == _MAGIC + hashlib.sha256(body).digest()


def _usable(directory: Path) -> Path | None:
    """Returns the directory, which is made if missing, if only we can write to it: code is loaded from it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = directory.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            return None
        if info.st_mode & 0o022:
            return None  # other users may have put files there
        directory.chmod(0o700)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError:
        return None


@functools.cache
def shared_cache() -> DiskCache:
    """Returns the process's cache in `config.cache_dir`; a temporary one with FRAMELOOM_CACHE=0."""
    return DiskCache(config.cache_dir if config.cache else None, config.cache_bytes)
