"""A CPython newer than those that are known: installing works, functions run as plain Python, one notice.

The module that is built there is built here, by the rule of setup.py and a pretended version.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import fresh

ROOT = Path(__file__).parents[2]

# setup.py as it runs on another interpreter: `pretended` is what it sees.
SETUP = """
import runpy, sys, sysconfig
import pybind11, setuptools
{pretended}
sys.argv = ["setup.py", "build_ext", "--build-lib", {folder!r}, "--build-temp", {folder!r} + "/objects"]
runpy.run_path("setup.py", run_name="__main__")
"""

NEWER = """
import collections
version = collections.namedtuple("version", "major minor micro releaselevel serial")
sys.version_info = version(3, 14, 0, "final", 0)
"""

# What import finds where that module was installed.
INSTALLED = """
import importlib.util, sys, warnings
import frameloom.capture
spec = importlib.util.spec_from_file_location("frameloom.capture._capture", {module!r})
sys.modules[spec.name] = frameloom.capture._capture = importlib.util.module_from_spec(spec)
sys.modules["frameloom.runtime._runtime"] = None
warnings.simplefilter("always")
"""


def setup(pretended, folder):
    text = SETUP.format(pretended=pretended, folder=str(folder))
    return subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("newer")
    done = setup(NEWER, folder)
    assert done.returncode == 0, done.stderr
    built = [
        path.relative_to(folder)
        for path in folder.rglob("*" + sysconfig.get_config_var("EXT_SUFFIX"))
    ]
    assert [str(path.parent) for path in built] == ["frameloom/capture"]
    return INSTALLED.format(module=str(folder / built[0]))


def test_all_that_users_import_runs_plainly_with_one_notice(installed):
    program = """
import torch
import frameloom
from frameloom import *

@jit
def double(x):
    return x * 2

@jit(fullgraph=True, dynamic=True)
def broken(x):
    print("printed")
    graph_break()
    return x.tolist()

class Net(torch.nn.Module):
    def forward(self, x):
        return cond(x.sum() > 0, torch.sin, torch.cos, (x,))

x = torch.ones(2)
mark_dynamic(x, 0)
mark_static(x, 0)
net = Net()
assert jit(net) is net and net(x).equal(x.sin())
assert frameloom.compile(net)(x).equal(x.sin())
assert double(x).equal(x * 2) and broken(x) == [1.0, 1.0]
with disable():
    assert double(x).equal(x * 2)
assert disable(double)(x).equal(x * 2) and not is_compiling()
report = explain(double)(x)
assert report.result.equal(x * 2) and not report.graphs and len(report.plain) == 1
assert str(report).endswith("plain: CPython 3.14 is not supported yet (3.11 to 3.13 are)"), report
assert list_backends() and stats()["graphs"] == 0
try:
    jit(double, mode="wrong")
except OptionError:
    reset()
"""
    done = fresh.run(installed + program)
    assert done.returncode == 0, done.stderr
    text = "RuntimeWarning: frameloom: CPython 3.14 is not supported yet (3.11 to 3.13 are); functions run as plain Python"
    assert done.stderr.count(text) == done.stderr.count("Warning") == 1, done.stderr
    assert done.stdout == "printed\n"


def test_import_alone_says_nothing(installed):
    done = fresh.run(installed + "import frameloom; frameloom.jit; frameloom.compile")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_setting_disable_says_nothing(installed):
    program = "import torch, frameloom; print(frameloom.jit(torch.sin) is torch.sin)"
    done = fresh.run(installed + program, env={**fresh.os.environ, "FRAMELOOM_DISABLE": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_free_threaded_python_is_refused(tmp_path):
    pretended = "known = sysconfig.get_config_var; sysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED' or known(name)"
    done = setup(pretended, tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("needs a CPython with the GIL: this one is free-threaded")
