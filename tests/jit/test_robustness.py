"""Threads, processes, disks that refuse, interrupts, large programs: right results and at most one notice."""

import multiprocessing
import os
import signal
import sys
import threading

import pytest
import torch

import frameloom
from frameloom import jit
from frameloom.capture import _capture
from frameloom.compile_lock import compile_lock
from tests import fresh

PROGRAM = """
import torch, frameloom
@frameloom.jit
def f(x, y):
    z = torch.softmax(x + y, -1) * 2
    print(end="")
    return z.relu() + x.sum()
x = torch.randn(8, 8)
with torch.no_grad():
    for _ in range(2):
        torch.testing.assert_close(f(x, x), f.__wrapped__(x, x))
print("right", frameloom.stats()["graphs"])
"""


def run_program(folder, text=PROGRAM, **variables):
    """(printed, warned) of a fresh process whose program is a file in `folder`."""
    path = folder / "program.py"
    path.write_text(text)
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("FRAMELOOM_") and k != "CXX"
    }
    environment |= {"FRAMELOOM_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = fresh.run(text, file=path, env=environment | variables)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.strip(), done.stderr.strip()


# --- threads


def in_threads(count, body):
    errors, start = [], threading.Barrier(count)

    def run(number):
        start.wait()
        try:
            with torch.no_grad():
                body(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_threads_that_meet_a_case_together_compile_it_once():
    @jit
    def f(x):
        return torch.relu(x) * 2 + 1

    x = torch.randn(64)
    before = frameloom.stats()["graphs"]

    def body(_):
        for _ in range(50):
            torch.testing.assert_close(f(x), torch.relu(x) * 2 + 1)

    in_threads(16, body)
    assert len(f.entries) == 1 and frameloom.stats()["graphs"] == before + 1


def test_threads_with_cases_of_their_own():
    @jit(dynamic=False)
    def f(x):
        y = x * 3
        print(end="")
        return y.sum()

    def body(number):
        x = torch.randn(2 + number)
        for _ in range(20):
            torch.testing.assert_close(f(x), (x * 3).sum())

    in_threads(8, body)
    assert len(f.entries) == 8


def test_a_backend_waits_for_a_thread_that_compiles():
    inner = jit(lambda x: x.sin())
    x = torch.randn(4)
    results = []

    def call():
        with torch.no_grad():
            results.append(inner(x))

    def backend(gm, _):
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(30)
        return gm

    with torch.no_grad():
        jit(lambda x: x * 2, backend=backend)(x)
    torch.testing.assert_close(results, [x.sin()])


# --- processes


def call_in_child(function, x, answers):
    with torch.no_grad():
        answers.put(torch.allclose(function(x), function.__wrapped__(x)))


@jit
def doubled(x):
    y = x.cos() * 2
    print(end="")
    return y.exp()


@pytest.mark.parametrize("sizes", [(5, 5), (5, 6)])
def test_fork_after_jit(sizes):
    first, second = (torch.randn(n) for n in sizes)
    with torch.no_grad():
        doubled(first)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=call_in_child, args=(doubled, second, answers))
    child.start()
    assert answers.get(timeout=60)
    child.join()


def test_fork_while_another_thread_compiles():
    held, done = threading.Event(), threading.Event()

    def hold():
        with compile_lock():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with torch.no_grad():
            right = torch.equal(jit(lambda x: x * 5)(torch.ones(3)), torch.full((3,), 5.0))
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert status == 0


def test_calls_while_the_interpreter_exits(tmp_path):
    text = """
import atexit, sys, torch, frameloom
torch.set_grad_enabled(False)
f = frameloom.jit(lambda x: x + 1)
m = frameloom.jit(torch.nn.Linear(3, 3).eval())
f(torch.ones(3)), m(torch.ones(3))
atexit.register(lambda: f(torch.ones(4)))
class Late:
    def __del__(self):
        f(torch.ones(3)), f(torch.ones(5))
sys.late = Late()
"""
    assert run_program(tmp_path, text) == ("", "")


# --- disks


def test_second_process_needs_no_compiler(tmp_path):
    assert run_program(tmp_path) == ("right 2", "")
    assert run_program(tmp_path, CXX="/missing/g++") == ("right 2", "")
    assert run_program(tmp_path, PATH="/missing") == ("right 2", "")


def test_no_compiler_and_no_cache(tmp_path):
    printed, warned = run_program(tmp_path, CXX="/missing/g++")
    assert printed == "right 0" and warned.count("RuntimeWarning") == 1 and "set CXX" in warned


def test_damaged_kernels_are_made_again(tmp_path):
    run_program(tmp_path)
    paths = sorted((tmp_path / "cache").glob("*/*.so"))
    paths[0].write_bytes(paths[0].read_bytes()[:3000])
    paths[1].write_bytes(b"garbage")
    for path in (tmp_path / "cache").glob("*/*.json"):
        path.write_bytes(b"")
    assert run_program(tmp_path) == ("right 2", "")


def test_cache_off_and_cache_in_impossible_places(tmp_path):
    assert run_program(tmp_path, FRAMELOOM_CACHE="0") == ("right 2", "")
    (tmp_path / "file").touch()
    printed, warned = run_program(tmp_path, FRAMELOOM_CACHE_DIR=str(tmp_path / "file" / "below"))
    assert printed == "right 2"
    assert len(warned.splitlines()) == 1 and "cannot use the cache directory" in warned


def test_full_disk(tmp_path):
    text = """
import os, frameloom.runtime.build.cache as cache
real, calls = os.replace, []
def full(*args):
    calls.append(args)
    if len(calls) == 1:
        raise OSError(28, "No space left on device")
    real(*args)
os.replace = full
"""
    printed, warned = run_program(tmp_path, text + PROGRAM)
    assert printed == "right 2" and len(warned.splitlines()) == 1 and "cannot use" in warned


# --- seeing inside


def test_dump_folder(tmp_path):
    dumps = tmp_path / "dumps"
    run_program(tmp_path, FRAMELOOM_DEBUG="1", FRAMELOOM_DEBUG_DIR=str(dumps))
    first, second = sorted(dumps.iterdir())
    for folder in (first, second):
        assert {path.name for path in folder.iterdir()} == {
            "graph_readable.py", "graph_runnable.py", "loops_before_fusion.txt", "loops_after_fusion.txt",
            "output_code.cpp", "guards.txt", "bytecode.txt", "timing.json",
        }  # fmt: skip
        assert all(path.stat().st_size for path in folder.iterdir())
        printed, _ = run_program(tmp_path, (folder / "graph_runnable.py").read_text())
        assert "equal" in printed
    assert "LOAD_CONST" in (first / "bytecode.txt").read_text()


def test_dump_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    printed, warned = run_program(
        tmp_path, FRAMELOOM_DEBUG="1", FRAMELOOM_DEBUG_DIR=str(tmp_path / "file")
    )
    assert printed == "right 2" and warned.count("RuntimeWarning") == 1


def test_log_topics(tmp_path):
    text = PROGRAM + "with torch.no_grad(): f(x[:4], x[:4])"
    printed, logged = run_program(tmp_path, text, FRAMELOOM_LOGS="all")
    assert printed == "right 2"
    topics = {line.partition("]")[0][1:] for line in logged.splitlines() if line[0] == "["}
    assert topics == frameloom.config.LOG_TOPICS


def test_unknown_log_topic():
    done = fresh.run(
        "import frameloom; frameloom.jit", env=os.environ | {"FRAMELOOM_LOGS": "breaks,wrong"}
    )
    assert "unknown topic 'wrong'; known: all, breaks" in done.stderr


# --- interrupts and sizes


def test_interrupted_compiles_leave_nothing_behind():
    x = torch.randn(8, 8)

    def interrupt(*_):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with torch.no_grad():
            for k in range(8):
                f = jit(lambda x, k=k: ((x * k).relu() + x.sum()).softmax(-1) @ x)
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.004 * k)
                    f(x)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    pass
                torch.testing.assert_close(f(x), f.__wrapped__(x))
                assert len(f.entries) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_endless_recursion_stays_the_programs_own():
    def endless(x):
        return endless(x + 1)

    @jit
    def f(x):
        try:
            return endless(x)
        except RecursionError:
            return x - 1

    x = torch.randn(3)
    limit = sys.getrecursionlimit()
    with torch.no_grad(), pytest.raises(RecursionError):
        jit(endless)(x)
    with torch.no_grad():
        assert torch.equal(f(x), x - 1)
    assert sys.getrecursionlimit() == limit


class Nested(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.rest = Nested(depth - 1) if depth else None

    def forward(self, x):
        x = self.linear(x)
        return x if self.rest is None else self.rest(x)


def test_200_layers_and_100_levels():
    x = torch.randn(2, 4)
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(200)]
    for model in (torch.nn.Sequential(*layers).eval(), Nested(100).eval()):
        with torch.no_grad():
            expected = model(x)
            torch.testing.assert_close(jit(model)(x), expected)


def test_60_arguments():
    names = ", ".join(f"a{i}" for i in range(60))
    scope = {}
    exec(
        f"def f({names}, *rest, scale=1, **more):\n    return ({names})[7] * scale, rest, more",
        scope,
    )
    f, arguments = jit(scope["f"]), [torch.full((3,), float(i)) for i in range(60)]
    with torch.no_grad():
        result, rest, more = f(*arguments, "x", scale=2, other=3)
        assert (
            torch.equal(result, torch.full((3,), 14.0)) and rest == ("x",) and more == {"other": 3}
        )
        result, _, _ = f(**{f"a{i}": arguments[i] for i in range(60)})
        assert torch.equal(result, torch.full((3,), 7.0))
        with pytest.raises(TypeError, match="missing 57 required"):
            f(*arguments[:3])


# --- outputs and order


def test_a_view_that_changes_nothing_is_an_object_of_its_own():
    @jit
    def f(x):
        y = x * 2
        return x.detach(), y, y.squeeze(0), x.transpose(-1, -1)

    x = torch.randn(3, 4)
    with torch.no_grad():
        detached, y, squeezed, same = f(x)
    assert detached is not x and detached.data_ptr() == x.data_ptr()
    assert squeezed is not y and squeezed.data_ptr() == y.data_ptr()
    assert same is not x and same.data_ptr() == x.data_ptr()


def test_empty_results():
    f = jit(lambda x: (x * 2, x.sum(-1), torch.zeros_like(x)))
    with torch.no_grad():
        assert [t.shape for t in f(torch.zeros(0, 3))] == [(0, 3), (0,), (0, 3)]


def test_order_of_bools():
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])

    def f(a, b):
        return a < b, a <= b, a > b, a >= b

    with torch.no_grad():
        for got, want in zip(jit(f)(a, b), f(a, b), strict=True):
            assert torch.equal(got, want)


@pytest.mark.parametrize("depth", [850, 950, 985])
def test_too_deep_for_a_compile(depth):
    """A call without room for a compile runs plainly; the next one with more room is compiled."""

    @jit
    def f(x):
        return x * 2 + 1

    def down(n):
        return down(n - 1) if n else f(X)

    X = torch.ones(3)
    free = sys.getrecursionlimit() - depth
    want = X * 2 + 1
    assert torch.equal(down(_capture.stack_room() - free), want)
    assert not f.entries or free > 100
    assert torch.equal(f(X), want)
    assert len(f.entries) == 1


def test_too_deep_to_compile_is_told(monkeypatch):
    """Where the call came from less deep than half of what there is: else a later call has more room."""

    def endless(*args):
        return endless(*args)

    monkeypatch.setattr("frameloom.compiler.capture_call", endless)
    f = jit(lambda x: x * 2 + 1)
    with pytest.warns(RuntimeWarning, match="recursion limit"):
        assert f(torch.ones(3)).tolist() == [3, 3, 3]
    assert f(torch.ones(3)).tolist() == [3, 3, 3]
