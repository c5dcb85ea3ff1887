"""Programs in processes of their own, which have imported PyTorch and nothing else yet.

    done = run("import frameloom; print(frameloom.stats())", env={...})   # a subprocess.CompletedProcess with text

To import PyTorch takes longer than most programs, so one process does that and forks for each program.  Python ends in it as it does in any
other: what is to happen at exit happens.  Only what PyTorch reads from the environment when it is imported is this process's.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path

SECONDS = 300  # then a program is ended, with SIGALRM


def run(program, *, file=None, arguments=(), env=None, imported=("torch",), check=False):
    """Runs a text, as if it stood in `file` where one is given; `env` is the whole environment, by default this process's."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        given = {
            "program": program,
            "argv": [str(file) if file else "-c", *map(str, arguments)],
            "env": dict(os.environ if env is None else env),
            "out": str(out),
            "err": str(err),
        }
        server = _server(tuple(imported))
        server.stdin.write(json.dumps(given) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        done = subprocess.CompletedProcess(program, status, out.read_text(), err.read_text())
    if check:
        assert done.returncode == 0, done.stderr
    return done


@functools.cache
def _server(imported):
    server = subprocess.Popen(
        [sys.executable, __file__, *imported],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(_end, server, os.getpid())
    return server


def _end(server, owner):
    if os.getpid() == owner:  # not in a fork of ours
        server.stdin.close()
        server.wait()


def serve():
    """Answers each request with the exit status of a forked process; returns in that process, with its request."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    while line := requests.readline():
        given = json.loads(line)
        pid = os.fork()
        if not pid:
            requests.close()
            answers.close()
            return given
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers, flush=True)
    os._exit(0)


def become(given):
    """The code to run, in a process that looks as if it had been started for it."""
    signal.alarm(SECONDS)
    for number, (path, how) in enumerate(
        [
            (os.devnull, os.O_RDONLY),
            (given["out"], os.O_WRONLY | os.O_CREAT),
            (given["err"], os.O_WRONLY | os.O_CREAT),
        ]
    ):
        opened = os.open(path, how)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(given["env"])
    sys.argv = given["argv"]
    file = sys.argv[0]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if file != "-c":
        sys.path[0], main.__file__ = str(Path(file).parent), file
    if threads := os.environ.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(threads))
    return compile(given["program"], file if file != "-c" else "<string>", "exec"), vars(main)


if __name__ == "__main__":
    sys.path[0] = ""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    # From here, not from a function: where this ends, Python ends.
    exec(*become(serve()))
