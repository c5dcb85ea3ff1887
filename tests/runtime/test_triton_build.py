"""Triton sources become machine code on any machine: right variants, one compile per content, clear errors."""

import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
import torch

from frameloom.codegen.triton.launch import LaunchSource
from frameloom.errors import BuildError, KernelError
from frameloom.runtime.build import triton_compiler as triton_build
from frameloom.runtime.build import triton_pool
from frameloom.runtime.build.cache import DiskCache
from frameloom.runtime.build.triton_compiler import build, try_build
from tests import fresh

pytest.importorskip("triton")

TEXT = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def {symbol}(a, b):
    i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    x = tl.load(a + i, mask=i < 100000)
    tl.store(b + i, {value}, mask=i < 100000)
"""


def source(symbol="twice", value="x * 2", **changes):
    text = TEXT.format(symbol=symbol, value=value)
    made = LaunchSource(text, symbol, ("*fp32", "*fp32"), (98, 1, 1), warps=4)
    return replace(made, **changes)


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache", 1 << 30)


@pytest.fixture
def pool(monkeypatch):
    made = triton_pool.Pool()
    monkeypatch.setattr(triton_pool, "_shared", made)
    yield made
    made.end()


@pytest.mark.parametrize("arch", [80, 90])
def test_a_kernel_becomes_machine_code(cache, arch):
    (cubin,) = build([source()], arch, cache=cache)
    assert cubin.data[:4] == b"\x7fELF"
    assert (cubin.symbol, cubin.shared, cubin.threads) == ("twice", 0, 128)
    assert cubin.extra >= 0


def test_answers_come_in_order(cache):
    sources = [source(f"k{n}", f"x + {n}") for n in range(5)]
    assert [c.symbol for c in build(sources, 90, cache=cache)] == [s.symbol for s in sources]


def test_equal_sources_are_compiled_once(cache, pool, monkeypatch):
    asked = []
    add = triton_pool.Round.add
    monkeypatch.setattr(
        triton_pool.Round, "add", lambda *given: asked.append(given[1]["symbol"]) or add(*given)
    )
    first = build([source(), source()], 90, cache=cache)
    assert first[0] == first[1]
    assert build([source()], 90, cache=cache) == first[:1]
    assert asked == ["twice"]


def test_what_decides_the_code_decides_the_key(cache):
    (a,) = build([source()], 90, cache=cache)
    for other, arch in [(source(warps=8), 90), (source(value="x * 3"), 90), (source(), 80)]:
        assert build([other], arch, cache=cache)[0].data != a.data


def test_where_a_kernel_comes_from_does_not_decide(cache, pool, monkeypatch):
    (first,) = build([source()], 90, cache=cache)
    monkeypatch.setattr(pool, "round", None)
    moved = source(
        text="# model.py:7 in forward\n" + source().text.replace("    x =", "    # p0: y\n    x =")
    )
    assert build([moved], 90, cache=cache) == [first]


def test_only_aligned_pointers_are_read_wide(cache):
    wide, narrow = (
        build([source()], 90, aligned=aligned, cache=cache)[0] for aligned in (True, False)
    )
    assert wide.data != narrow.data
    assert len(narrow.data) > len(wide.data)  # four loads for one


def test_a_product_and_a_sum_round_separately(cache, tmp_path):
    tools = triton_pool.triton_folder() / "backends" / "nvidia" / "bin"
    if not (tools / "cuobjdump").exists():
        pytest.skip("no disassembler here")
    (cubin,) = build([source(value="x * x + x")], 90, cache=cache)
    file = tmp_path / "k.cubin"
    file.write_bytes(cubin.data)
    command = [tools / "cuobjdump", "-sass", file]
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    code = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "FMUL" in code.stdout
    assert "FFMA" not in code.stdout


def test_large_blocks_of_shared_memory_are_announced(cache):
    text = """
import triton
import triton.language as tl

@triton.jit
def total(a, b):
    i = tl.arange(0, 4096)
    tl.store(b, tl.sum(tl.load(a + i), 0))
"""
    summing = LaunchSource(text, "total", ("*fp32", "*fp32"), (1, 1, 1), warps=8)
    (cubin,) = build([summing], 90, cache=cache)
    assert cubin.shared > 0
    assert cubin.threads == 256


def test_bools_are_bytes(cache):
    text = """
import triton
import triton.language as tl

@triton.jit
def positive(a, b):
    i = tl.arange(0, 128)
    tl.store(b + i, tl.load(a + i) > 0)
"""
    made = LaunchSource(text, "positive", ("*fp32", "*i1"), (1, 1, 1), warps=4)
    assert build([made], 90, cache=cache)


def test_assertions_on_the_device_are_compiled_in_if_asked_for(cache):
    text = TEXT.format(symbol="checked", value="x").replace(
        "    tl.store", '    tl.device_assert(x < 5, "too large")\n    tl.store'
    )
    plain = LaunchSource(text, "checked", ("*fp32", "*fp32"), (98, 1, 1), warps=4)
    without, checked = build([plain, replace(plain, debug=True)], 90, cache=cache)
    assert b"too large" in checked.data
    assert b"too large" not in without.data


def test_what_is_refused_among_others_is_none(cache):
    sources = [source("fine"), source("broken", "tl.nothing(x)"), source("fine_too", "x + 1")]
    first, refused, last = try_build(sources, 90, cache)
    assert (first.symbol, refused, last.symbol) == ("fine", None, "fine_too")


def test_an_error_has_the_source_and_the_compilers_words(cache):
    with pytest.raises(KernelError, match="no_such_name") as caught:
        build([source(value="x + no_such_name")], 90, cache=cache)
    assert "def twice(a, b):" in str(caught.value)
    assert build([source()], 90, cache=cache)  # the process goes on


def test_an_error_of_the_module_is_told(cache):
    with pytest.raises(KernelError, match="SyntaxError"):
        build([source(text="def (")], 90, cache=cache)


def test_a_dead_worker_is_replaced(cache, pool):
    build([source()], 90, cache=cache)
    (worker,) = pool._workers
    pid = worker.process.pid
    os.kill(pid, signal.SIGSTOP)  # so that it dies at work, not before
    asked = worker.ask

    def ask_and_kill(request):
        asked(request)
        os.kill(pid, signal.SIGKILL)

    worker.ask = ask_and_kill
    assert build([source("thrice", "x * 3")], 90, cache=cache)[0].symbol == "thrice"
    assert worker not in pool._workers


def test_a_kernel_that_kills_its_worker_twice_is_an_error(cache, pool):
    with pytest.raises(KernelError, match="died"):
        build([source(text="import os; os._exit(3)")], 90, cache=cache)
    assert build([source()], 90, cache=cache)


def test_that_workers_left_as_they_were_asked_is_no_kernels_fault(cache, pool, monkeypatch):
    asked, leaving = triton_pool.Worker.ask, [1, 2]

    def ask(worker, request):
        if leaving:
            leaving.pop()
            worker.process.stdin.close()  # it ends as one does that had nothing to do
        else:
            asked(worker, request)

    monkeypatch.setattr(triton_pool.Worker, "ask", ask)
    assert build([source()], 90, cache=cache)[0].symbol == "twice"
    assert not leaving


def test_a_silent_worker_is_an_error(cache, pool, monkeypatch):
    monkeypatch.setattr(triton_pool, "config", replace(triton_pool.config, compile_seconds=0.5))
    with pytest.raises(KernelError, match="no answer"):
        build([source(text="import time; time.sleep(60)")], 90, cache=cache)


def test_a_worker_ends_with_its_parent(tmp_path):
    program = (
        "import os\n"
        "from frameloom.runtime.build import triton_pool\n"
        "triton_pool.shared_pool().prewarm(90)\n"
        "print(triton_pool.shared_pool()._workers[0].process.pid, flush=True)\n"
        "os._exit(0)\n"
    )
    done = fresh.run(program)
    pid = int(done.stdout)
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if open(f"/proc/{pid}/stat").read().split()[2] == "Z":
            return  # nobody waits for it here
        time.sleep(0.05)
    pytest.fail("the worker outlives its parent")


def test_work_goes_to_workers_that_are_ready(cache, pool):
    build([source()], 90, cache=cache)
    (first,) = pool._workers
    started = time.perf_counter()
    build([source(f"k{n}", f"x - {n}") for n in range(3)], 90, cache=cache)
    assert first in pool._workers
    assert first.ready
    assert time.perf_counter() - started < 60


def test_a_triton_that_cannot_be_imported_is_an_error(cache, pool, tmp_path, monkeypatch):
    broken = tmp_path / "triton"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('half installed')")
    monkeypatch.setattr(triton_pool, "triton_folder", lambda: broken)
    with pytest.raises(BuildError, match="half installed"):
        build([source()], 90, cache=cache)


def test_triton_is_warmed_up_where_cuda_is_in_use(monkeypatch, pool):
    asked = []
    monkeypatch.setattr(pool, "prewarm", lambda *given: asked.append(given))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    triton_build.prewarm()
    assert asked == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    triton_build.prewarm()
    triton_build.prewarm(12)
    assert asked == [(90, 0), (90, 12)]


def test_as_many_workers_start_ahead_as_there_will_be_work_for(pool, monkeypatch):
    monkeypatch.setattr(triton_pool.os, "cpu_count", lambda: 6)
    pool.prewarm(90)
    assert len(pool._workers) == 1
    pool.prewarm(90, 2)
    assert len(pool._workers) == 2
    pool.prewarm(90, 100)
    assert len(pool._workers) == 3


def test_work_is_new_once(cache):
    assert triton_build.first_time("a graph", cache)
    assert not triton_build.first_time("a graph", cache)
    assert triton_build.first_time("another", cache)


def test_a_forked_child_starts_workers_of_its_own(pool):
    pool.prewarm(90)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if triton_pool._shared is None else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_nothing_is_written_to_tritons_own_cache(tmp_path):
    program = (
        "from tests.runtime.test_triton_build import source\n"
        "from frameloom.runtime.build.triton_compiler import build\n"
        "from frameloom.runtime.build.cache import DiskCache\n"
        "from pathlib import Path\n"
        f"build([source()], 90, cache=DiskCache(Path({str(tmp_path / 'own')!r}), 1 << 30))\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "TRITON_HOME": str(home)}
    fresh.run(program, env=environment, check=True)
    assert not list(home.iterdir())


def test_without_triton_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(triton_pool.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match="pip install triton"):
        triton_pool.triton_folder()
    triton_pool.Pool().prewarm(90)  # says nothing yet
