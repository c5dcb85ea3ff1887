"""Tests run with verification of the structure of programs on, a kernel cache of their own, and without the network."""

import gc
import itertools
import os
import shutil
import tempfile

os.environ.setdefault("FRAMELOOM_VERIFY", "structure")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Read when Triton is first imported; compiling happens in other processes, which do not see it.
os.environ.setdefault("TRITON_INTERPRET", "1")
# Kernels of tests are small: the compiler takes a third of the time without looking for what would make them faster.
os.environ.setdefault("CXX", "c++ -O0" if not shutil.which("g++") else "g++ -O0")
if "FRAMELOOM_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="frameloom-tests-")
    os.environ["FRAMELOOM_CACHE_DIR"] = _cache.name

import pytest
import torch

from tests.observe import seed


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a CUDA device")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)


def pytest_collectstart(collector):
    """What a module draws when it is imported is the same in every run, too."""
    seed(0)


@pytest.fixture(autouse=True)
def _seed():
    seed(0)


finished = itertools.count(1)


@pytest.fixture(autouse=True)
def _own_heap():
    """The garbage collector looks at what the test makes, not at all that is there: that takes a second, each time."""
    gc.freeze()
    yield
    gc.unfreeze()
    if next(finished) % 500 == 0:
        gc.collect()
