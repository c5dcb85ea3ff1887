"""Decoding a code object and assembling it again gives an equal one."""

import shutil
import subprocess
import types
from pathlib import Path

import pytest

from frameloom.capture.bytecode import instruction as instr
from tests.capture import round_trip

SCRIPT = round_trip.__file__


def test_a_sample_of_the_library_and_of_torch():
    """`make cpython` does them all."""
    files, count, wrong = round_trip.check(round_trip.default_folders(), every=60)
    assert not wrong
    assert files > 40 and count > 1000


def test_free_variable_and_cell_of_one_name():
    source = "def f():\n  __class__ = 1\n  class X:\n    nonlocal __class__\n    def g(self): return __class__\n    __class__\n"
    for code in round_trip.codes(compile(source, "x", "exec")):
        assert round_trip.differing(code, round_trip.round_trip(instr, code)) == []


@pytest.mark.parametrize("version", ["3.13"])
def test_a_version_without_torch(version):
    pyenv = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")
    found = next(map(str, pyenv), None) or shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"no CPython {version} here")
    run = subprocess.run(
        [found, SCRIPT, "--every", "40"], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_runs_again():
    def f(xs, *, k=1):
        total = 0
        for x in xs:
            try:
                total += 1 // x
            except ZeroDivisionError:
                total += [y + k for y in xs][-1]
        return total

    new = types.FunctionType(round_trip.round_trip(instr, f.__code__), globals(), "f")
    assert new([1, 0, 2], k=5) == f([1, 0, 2], k=5)
