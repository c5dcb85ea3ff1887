"""Compiling: cache, errors, the compiler's identity."""

import ctypes
import os
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from frameloom.errors import BuildError, KernelError
from frameloom.runtime import _runtime
from frameloom.runtime.build import cpp_compiler as build
from frameloom.runtime.build.cache import DiskCache
from frameloom.runtime.build.cpp_compiler import Builder, find_compiler


@dataclass(frozen=True)
class Text:
    text: str
    flags: tuple[str, ...] = ()


def answer(number: int) -> Text:
    return Text(f'extern "C" int answer() {{ return {number}; }}\n')


@pytest.fixture
def builder(tmp_path) -> Builder:
    return Builder(DiskCache(tmp_path / "cache", 1 << 20))


def test_builds_and_keeps(builder, monkeypatch):
    paths = builder.build([answer(41), answer(42)])
    assert [ctypes.CDLL(str(p)).answer() for p in paths] == [41, 42]

    def no_process(*_, **__):
        raise AssertionError("a compiler was started")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    # A new process: nothing in memory, everything on disk.
    build._version.cache_clear()
    fresh = Builder(DiskCache(builder.cache.directory, 1 << 20))
    assert fresh.build([answer(42), answer(41)]) == paths[::-1]


def test_the_same_source_twice(builder):
    first, second = builder.build([answer(1), answer(1)])
    assert first == second


def test_flags_count(builder):
    one = Text('extern "C" int answer() { return N; }', ("-DN=1",))
    two = Text(one.text, ("-DN=2",))
    assert [ctypes.CDLL(str(p)).answer() for p in builder.build([one, two])] == [1, 2]


def test_flags_behind_the_compiler_count(builder, tmp_path):
    source = Text('extern "C" int answer() { return N; }')
    found = []
    for number in (1, 2):
        named = Builder(builder.cache, f"{find_compiler()} -DN={number}")
        found.append(ctypes.CDLL(str(named.build([source])[0])).answer())
    assert found == [1, 2]
    (folder := tmp_path / "my compiler").mkdir()
    (folder / "g++").symlink_to(find_compiler())
    spaced = Builder(builder.cache, str(folder / "g++"))
    assert ctypes.CDLL(str(spaced.build([answer(8)])[0])).answer() == 8


def test_a_compiler_error_is_shown(builder):
    with pytest.raises(BuildError, match="not_declared"):
        builder.build([Text("int f() { return not_declared; }")])


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    find_compiler.cache_clear()
    with pytest.raises(BuildError, match="apt install"):
        find_compiler()
    with pytest.raises(BuildError, match="CXX=icc"):
        find_compiler("icc")
    with pytest.raises(BuildError, match="is not an executable"):
        Builder(compiler='g++ "-O0').build([answer(4)])
    find_compiler.cache_clear()


def test_another_compiler_is_another_key(builder, tmp_path):
    wrapper = tmp_path / "my-g++"
    wrapper.write_text(f'#!/bin/sh\nexec {find_compiler()} "$@"\n')
    wrapper.chmod(0o755)
    other = Builder(builder.cache, str(wrapper))
    assert other.build([answer(5)]) != builder.build([answer(5)])


def test_denormals_survive_loading(builder):
    import torch

    source = Text('extern "C" int answer() { return 1; }')
    ctypes.CDLL(str(builder.build([source])[0]))
    assert float(torch.tensor(1e-40) * 1) != 0.0


def test_damaged_library_is_built_again(builder):
    (path,) = builder.build([answer(9)])
    os.truncate(path, 100)
    fresh = Builder(DiskCache(builder.cache.directory, 1 << 20))
    assert ctypes.CDLL(str(fresh.build([answer(9)])[0])).answer() == 9


def script(path, text) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_compiler_that_hangs_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "config", replace(build.config, compile_seconds=1))
    started = tmp_path / "started"
    text = f'[ "$1" = --version ] && exec echo 1\nsleep 600 &\necho $! > {started}; wait'
    slow = Builder(DiskCache(tmp_path / "cache", 1 << 20), script(tmp_path / "g++", text))
    with pytest.raises(KernelError, match="FRAMELOOM_COMPILE_SECONDS"):
        slow.build([answer(3)])
    child = Path(f"/proc/{started.read_text().strip()}")
    end = time.monotonic() + 5
    while child.exists() and "zombie" not in (child / "status").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)


def call(library) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int)(_runtime.symbol(library, "answer"))()


def test_a_library_that_does_not_load_is_built_again(builder):
    key = builder._key(answer(7))
    builder.cache.put(key, ".so", b"no library, with a valid sum")
    assert call(builder.load([answer(7)])[0]) == 7


def test_what_a_broken_compiler_makes_is_not_kept(tmp_path):
    text = 'for last; do :; done; [ "$1" = --version ] && exec echo 1; echo nothing > "$last"'
    broken = Builder(DiskCache(tmp_path / "cache", 1 << 20), script(tmp_path / "g++", text))
    with pytest.raises(BuildError, match="cannot be loaded"):
        broken.load([answer(8)])
    assert broken.cache.path(broken._key(answer(8)), ".so") is None


def test_a_library_goes_with_the_object(builder):
    (library,) = builder.load([answer(11)])
    name = Path(builder.build([answer(11)])[0]).name
    assert name in Path("/proc/self/maps").read_text()
    del library
    assert name not in Path("/proc/self/maps").read_text()
