"""Tests run with verification of the structure of programs on, a kernel cache of their own, and without the network."""

import gc
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

os.environ.setdefault("FRAMELOOM_VERIFY", "structure")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Read when Triton is first imported; compiling happens in other processes, which do not see it.
os.environ.setdefault("TRITON_INTERPRET", "1")
# Threads that have no work sleep; they would take the core of the other process of tests, which costs a fifth of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Kernels of tests are small: the compiler takes a third of the time without looking for what would make them faster.
os.environ.setdefault("CXX", "c++ -O0" if not shutil.which("g++") else "g++ -O0")
if "FRAMELOOM_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="frameloom-tests-")
    os.environ["FRAMELOOM_CACHE_DIR"] = _cache.name
if sys.dont_write_bytecode:
    # Many tests start a Python, and each would compile all of PyTorch again.
    _bytecode = tempfile.TemporaryDirectory(
        prefix="frameloom-bytecode-", ignore_cleanup_errors=True
    )
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = _bytecode.name
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

import pytest
import torch

from tests.observe import seed


def pytest_addoption(parser):
    parser.addoption(
        "--sample", type=int, default=1, metavar="N", help="run one test of N, and no slow ones"
    )


def pytest_collection_modifyitems(config, items):
    if (n := config.getoption("--sample")) > 1:
        items[:] = [
            item
            for item in items
            if zlib.crc32(item.nodeid.encode()) % n == 0 and not item.get_closest_marker("slow")
        ]
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a CUDA device")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)


def pytest_collectstart(collector):
    """What a module draws when it is imported is the same in every run, too."""
    seed(0)


def pytest_collection_finish():
    """The garbage collector looks at what tests make, not at all that is imported: that takes a second, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed():
    seed(0)


HERE = Path(__file__).parent
INTERPRETED = {"jit", "capture", "programs", "public_issues", "ir"}
SHARE = 8  # one test of so many is compiled nevertheless


def is_compiled(item):
    """Whether kernels come from the compiler, and not from the interpreter of the loop IR.  That takes a third of the time of tests which are
    about what is captured, and computes the same; those about kernels, plans and memory are marked."""
    if os.environ.get("FRAMELOOM_TESTS") == "compiled" or INTERPRETED.isdisjoint(
        item.path.relative_to(HERE).parts
    ):
        return True
    marked = any(map(item.get_closest_marker, ("compiled", "gpu")))
    return marked or zlib.crc32(item.nodeid.encode()) % SHARE == 0


@pytest.fixture(autouse=True)
def _kernels(request):
    if is_compiled(request.node):
        yield
        return
    from tests.fuzz.interpret import interpreted

    with interpreted():
        yield
