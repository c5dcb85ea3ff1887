"""The executor of plans links and runs without Python."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXECUTOR = ROOT / "runtime" / "executor"
HOST = Path(__file__).with_name("executor_host.cpp")


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("path", sorted(EXECUTOR.iterdir()), ids=lambda p: p.name)
def test_no_file_of_the_executor_names_python(path):
    text = without_comments(path.read_text())
    assert not re.findall(r"\bPy(?!Torch)[A-Z_]\w*|\bpy::|Python\.h|pybind11", text)
    # Nor a header of the binding: all that it includes lies beside it, or is of C++ or the system.
    own = {p.name for p in EXECUTOR.iterdir()}
    assert set(re.findall(r'#include "(.*)"', text)) <= own


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The executor with a host of its own; the compiler has no path to headers of Python."""
    folder = tmp_path_factory.mktemp("executor")
    sources = [*sorted(EXECUTOR.glob("*.cpp")), HOST]
    objects = [folder / f"{s.stem}.o" for s in sources]

    def build(source, target):
        command = ["g++", "-std=c++17", "-O0", f"-I{EXECUTOR}", "-c", source, "-o", target]
        subprocess.run(command, check=True)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build, sources, objects))
    subprocess.run(["g++", "-o", folder / "program", *objects, "-ldl"], check=True)
    return folder / "program"


def test_a_program_without_python_runs_a_plan(program):
    result = subprocess.run([program], check=True, capture_output=True, text=True)
    assert result.stdout.splitlines() == [
        "4: 1 3 5 7",
        "2: 1 3",
        "5: out of memory",
        "0 tensors are left",
    ]


def test_the_program_is_linked_with_no_python(program):
    linked = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    assert "python" not in linked and "torch" not in linked
