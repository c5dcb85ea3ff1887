"""Compiles generated C++ to shared libraries: in parallel subprocesses, each content once (cache.py).

    Builder().build([source, ...]) -> [path of a shared library, ...]
    Builder().load([source, ...]) -> [loaded library, ...]

A source has `text` and `flags`.  A compiler that takes too long is killed, with the processes that it has
started.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter  # by name: the program may replace the functions of `time`
from typing import TYPE_CHECKING, Protocol

from frameloom.config import config
from frameloom.debug import log
from frameloom.errors import BuildError, KernelError
from frameloom.runtime._runtime import load_library
from frameloom.runtime.build.cache import DiskCache, digest, shared_cache

if TYPE_CHECKING:
    from frameloom.runtime._runtime import Library

# Never use -ffast-math: a library linked with it switches denormals off for the whole process.
# The generated code has explicit vectors; to look for more of them (SLP) takes GCC minutes for kernels with
# many strided loads.
FLAGS = (
    "-O2", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-fwrapv", "-fno-exceptions", "-fno-rtti", "-fno-tree-slp-vectorize", "-w",
)  # fmt: skip
# Kernels only call functions from these libraries, and functions that every process has.  To search the C++
# library and the start files, too, takes the linker a fifth of the time of a compile.
GCC_FLAGS = ("-nostartfiles", "-nodefaultlibs")
GCC_LIBRARIES = ("-x", "none", "-lm", "-lgomp", "-lgcc")
_LAST_COMPILER = digest("the compiler of the last build")


class Source(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def flags(self) -> tuple[str, ...]: ...


class Builder:
    """A compiler and a cache."""

    def __init__(self, cache: DiskCache | None = None, compiler: str | None = None) -> None:
        """`compiler`: a compiler as in CXX."""
        self.cache = cache or shared_cache()
        self._compiler, self._flags = split_flags(compiler or config.cxx)

    def build(self, sources: Sequence[Source]) -> list[Path]:
        """Returns a library per source; raises BuildError with the compiler's message."""
        keys = [self._key(s) for s in sources]
        paths = [self.cache.path(k, ".so") for k in keys]
        for k, path in zip(keys, paths, strict=True):
            log("cache", f"{k}: {'found' if path else 'not in the cache'}")
        missing = {k: s for k, s, path in zip(keys, sources, paths, strict=True) if path is None}
        if missing:
            library_of = dict(zip(missing, self._compile_all(list(missing.values())), strict=True))
            paths = [
                path or self.cache.put(k, ".so", library_of[k])
                for k, path in zip(keys, paths, strict=True)
            ]
            self._remember_compiler()
        return [p for p in paths if p is not None]

    def load(self, sources: Sequence[Source]) -> list[Library]:
        """Returns the libraries of `build`, loaded; raises BuildError with the loader's message.  A library
        that does not load is removed from the cache and built once more: it may have been broken when it was
        written there."""
        try:
            return [load_library(str(path)) for path in self.build(sources)]
        except OSError as error:
            log("cache", f"a library does not load, building it again: {error}")
        self._forget_broken(sources)
        try:
            return [load_library(str(path)) for path in self.build(sources)]
        except OSError as error:
            self._forget_broken(sources)
            raise BuildError(
                f"what {self._identity()[0]} has made cannot be loaded: {error}"
            ) from error

    def _forget_broken(self, sources: Sequence[Source]) -> None:
        for key in map(self._key, sources):
            path = self.cache.path(key, ".so")
            try:
                if path is not None:
                    load_library(str(path))
            except OSError:
                self.cache.remove(key, ".so")

    def _key(self, source: Source) -> str:
        # Without comments: they name lines of the program, which do not matter.
        code = re.sub(r"[ ]*//[^\n]*", "", source.text)
        return digest(code, *FLAGS, *self._flags, "", *source.flags, "", *self._identity())

    def _identity(self) -> tuple[str, str]:
        """Returns the compiler for cache keys: ours, or the last one that was used if none is installed any
        more."""
        try:
            return self.compiler()
        except BuildError:
            known = self.cache.get(_LAST_COMPILER, ".json")
            if known is None:
                raise
            path, version = json.loads(known)
            return str(path), str(version)

    def _remember_compiler(self) -> None:
        identity = json.dumps(self.compiler()).encode()
        if self.cache.get(_LAST_COMPILER, ".json") != identity:
            self.cache.put(_LAST_COMPILER, ".json", identity)

    def compiler(self) -> tuple[str, str]:
        """Returns (path, version); does not start a process if the compiler is known already."""
        path = find_compiler(self._compiler)
        info = os.stat(path)
        key = digest(path, str(info.st_size), str(info.st_mtime_ns))
        return path, _version(self.cache, path, key)

    def _compile_all(self, sources: Sequence[Source]) -> list[bytes]:
        if len(sources) == 1:
            return [self._compile(sources[0])]
        with ThreadPoolExecutor(min(len(sources), os.cpu_count() or 1)) as pool:
            return list(pool.map(self._compile, sources))

    def _compile(self, source: Source) -> bytes:
        started = perf_counter()
        path, version = self.compiler()
        ours, libraries = (GCC_FLAGS, GCC_LIBRARIES) if _is_gcc(version) else ((), ())
        try:
            with tempfile.TemporaryDirectory(prefix="frameloom-") as folder:
                out = Path(folder) / "kernels.so"
                flags = (*FLAGS, *self._flags, *ours, *source.flags)
                command = [path, *flags, "-x", "c++", "-", *libraries]
                # Text over a pipe and temporaries in memory: a compile writes to the disk once, for the
                # result.
                status, output = run_limited([*command, "-o", str(out)], source.text.encode())
                if status != 0:
                    raise KernelError(_failure(command, output.decode(errors="replace")))
                data = out.read_bytes()
        except OSError as error:
            raise BuildError(f"cannot compile a kernel with {path}: {error}") from error
        log("cache", f"compiled a kernel source in {1e3 * (perf_counter() - started):.0f} ms")
        return data


def _is_gcc(version: str) -> bool:
    return sys.platform == "linux" and ("g++" in version or "gcc" in version.lower())


def run_limited(command: Sequence[str], given: bytes) -> tuple[int, bytes]:
    """Runs a command; returns its exit status and output.  Raises KernelError if it takes longer than
    `config.compile_seconds`.  The processes that it starts (g++ starts the compiler proper and an assembler)
    end with it in any case."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(given, timeout=config.compile_seconds)
        except subprocess.TimeoutExpired:
            raise KernelError(
                f"{command[0]} has not finished within {config.compile_seconds} s; FRAMELOOM_COMPILE_SECONDS sets another limit"
            ) from None
        finally:
            end_group(process)
        return process.returncode, output


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that was started in a session of its own, and the processes that it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def _failure(command: Sequence[str], output: str) -> str:
    lines = output.strip().splitlines()
    return "the C++ compiler failed:\n" + " ".join(command) + "\n" + "\n".join(lines[:40])


def split_flags(command: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Returns the compiler and the flags in CXX ("g++ -O0 -g"), as other tools read it.  The flags follow our
    own."""
    if command is None or shutil.which(command):  # a path may have spaces
        return command, ()
    try:
        compiler, *flags = shlex.split(command) or [command]
    except ValueError:  # a quotation that does not end: there is no such compiler
        return command, ()
    return compiler, tuple(flags)


@functools.cache
def find_compiler(wanted: str | None = None) -> str:
    """Returns the absolute path of the compiler, or raises BuildError that says what to do."""
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        path = shutil.which(name)
        if path:
            return os.path.realpath(path)
    if wanted:
        raise BuildError(
            f"CXX={wanted} is not an executable; set CXX to a C++ compiler or unset it"
        )
    raise BuildError(
        "no C++ compiler was found (looked for g++, c++, clang++ on PATH); install one, e.g. `apt install g++`, "
        "or set CXX to its path; FRAMELOOM_DISABLE=1 runs without compiling"
    )


@functools.lru_cache(maxsize=8)
def _version(cache: DiskCache, path: str, key: str) -> str:
    known = cache.get(key, ".json")
    if known is not None:
        return str(json.loads(known)["version"])
    try:
        status, output = run_limited([path, "--version"], b"")
    except OSError as error:
        raise BuildError(f"{path} --version failed: {error}") from error
    if status != 0:
        raise BuildError(f"{path} --version failed: {output.decode(errors='replace')}")
    version = output.decode(errors="replace").partition("\n")[0]
    cache.put(key, ".json", json.dumps({"version": version}).encode())
    return version


@functools.cache
def _shared_builder() -> Builder:
    return Builder()


def load(sources: Sequence[Source]) -> list[Library]:
    """Returns a loaded library per source, with the process's compiler and cache."""
    return _shared_builder().load(sources)
