"""Processes that run a module of a copy.

They are forked from this one, which has imported what all of them need and nothing of any copy: that takes longer than most tests.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutants.tree import ROOT, Tree


def prepare() -> None:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # as tests/conftest.py does, before PyTorch
    for module in ("torch", "pytest", "numpy", "hypothesis", "networkx", "sympy"):
        importlib.import_module(module)


class Child:
    """A process and all that it starts, which end with it."""

    def __init__(
        self, module: str, given: Sequence[str], tree: Tree, env: Mapping[str, str], out: Path
    ) -> None:
        self._out = out
        self.status: int | None = None
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid:
            return
        status = 1
        try:
            _become(tree, env, out)
            sys.argv = [module, *given]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def ended(self, seconds: float) -> bool:
        """Waits for it, so long at most."""
        until = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                return False
            else:
                time.sleep(0.02)
        return True

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        self.ended(1e9)

    def output(self) -> str:
        return self._out.read_text(errors="replace")


def _become(tree: Tree, env: Mapping[str, str], out: Path) -> None:
    os.setsid()
    os.nice(5)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    written = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.chdir(tree.folder)
    os.environ.update({**tree.environment(), **env})
    tempfile.tempdir = None
    own = [str(tree.folder / "package"), str(tree.folder)]
    sys.path[:] = own + [p for p in sys.path if p not in ("", str(ROOT))]
    for name in [n for n in sys.modules if n == "tests" or n.startswith("tests.")]:
        del sys.modules[name]
    assert not any(n.split(".")[0] == "frameloom" for n in sys.modules)
