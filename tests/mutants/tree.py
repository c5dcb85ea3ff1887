"""Copies of the repository: one as it is, one that a mutant at a time is planted in.

`package/frameloom` in a copy holds links that look like the installed package, so that PYTHONPATH decides which copy is imported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
PARTS = ("jit", "capture", "ir", "codegen", "runtime")


class Tree:
    """A copy, with a kernel cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder.with_name(f"{folder.name}-kernels")

    def fill(self) -> None:
        """Brings the copy up to date with the repository, built libraries included."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        files = {Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()}
        files |= {path.relative_to(ROOT) for part in PARTS for path in (ROOT / part).glob("*.so")}
        for path in self.folder.rglob("*"):
            inside = path.relative_to(self.folder)
            if path.is_file() and inside.parts[0] not in ("package", "build") and inside not in files:  # fmt: skip
                path.unlink()
        for name in files:
            self._write(name, (ROOT / name).read_bytes())
        link_package(self.folder)

    def environment(self) -> dict[str, str]:
        """For processes that shall import this copy."""
        return {**importing(self.folder), "FRAMELOOM_CACHE_DIR": str(self.cache)}

    @contextlib.contextmanager
    def planted(self, mutant: Mutant, plain: Tree) -> Iterator[None]:
        """With the mutant; its kernel cache begins as the plain copy's."""
        path = Path(mutant.path)
        text = (plain.folder / path).read_text()
        self._take_cache(plain)
        try:
            self._write(path, mutant.applied(text).encode())
            if mutant.native:
                build(self.folder)
            yield
        finally:
            self._write(path, text.encode())
            if mutant.native:
                for library in plain.folder.glob("*/*.so"):
                    inside = library.relative_to(plain.folder)
                    self._write(inside, library.read_bytes())
            if not mutant.path.startswith("runtime/"):
                _link(self.cache, plain.cache)  # what is built is decided by the key
            shutil.rmtree(self.cache, ignore_errors=True)

    def _take_cache(self, plain: Tree) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)
        _link(plain.cache, self.cache)

    def _write(self, name: Path, data: bytes) -> None:
        """Nothing where the file says so already; compiled code goes by second and size, which a mutant need not change."""
        path = self.folder / name
        if path.exists() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a process may have the library mapped
        path.write_bytes(data)
        shutil.copymode(ROOT / name, path)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()


def link_package(folder: Path) -> None:
    """Makes `package/frameloom` in a copy."""
    package = folder / "package" / "frameloom"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for part in PARTS[1:]:
        (package / part).symlink_to(folder / part)
    for path in (folder / "jit").iterdir():
        if path.name != "__pycache__":
            (package / path.name).symlink_to(path)


def importing(folder: Path) -> dict[str, str]:
    """The environment of processes that shall import this copy."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "package"), str(folder)])}


def build(folder: Path) -> None:
    """The extension modules of a copy."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"does not compile:\n{done.stderr[-2000:]}")


def _link(source: Path, target: Path) -> None:
    """Libraries of a kernel cache, which are replaced and never written to."""
    for entry in source.glob("??/*.so"):
        place = target / entry.relative_to(source)
        if not place.exists():
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.link(entry, place)
