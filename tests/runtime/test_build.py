"""Compiling: cache, errors, the compiler's identity."""

import ctypes
import os
import subprocess
from dataclasses import dataclass

import pytest

from frameloom.errors import BuildError
from frameloom.runtime import build
from frameloom.runtime.build import Builder, find_compiler
from frameloom.runtime.cache import DiskCache


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

    monkeypatch.setattr(subprocess, "run", no_process)
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
