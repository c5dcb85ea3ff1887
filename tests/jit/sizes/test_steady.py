"""Where sizes vary and the same keep coming, a version for them is built beside the program, and runs their calls from then on."""

import gc
import textwrap
import threading
import weakref
from dataclasses import replace

import pytest
import torch

import frameloom.backend.hot_shapes
from frameloom import jit, stats
from frameloom.backend.background import background
from frameloom.config import config
from tests import fresh

pytestmark = pytest.mark.compiled

OFTEN = 48  # calls, as runtime/plan/hot_shapes.h has it


@pytest.fixture(autouse=True)
def built(monkeypatch):
    """What has been said of versions, in the tests' order."""
    said = []
    monkeypatch.setattr(frameloom.backend.hot_shapes, "log", lambda topic, text: said.append(text))
    frameloom.reset()
    yield said
    background.wait()


def often(jitted, fn, *args, times=OFTEN + 2):
    for _ in range(times):
        torch.testing.assert_close(jitted(*args), fn(*args))
    background.wait()
    for _ in range(3):
        torch.testing.assert_close(jitted(*args), fn(*args))


def rows(x):
    return torch.softmax(x, -1) * x.shape[0] + x.sum(0)


def names(built):
    return [text.split(":")[0] for text in built if "has a version of its own" in text]


def test_sizes_that_keep_coming_have_a_version(built):
    jitted = jit(rows, dynamic=True)
    often(jitted, rows, torch.randn(4, 6))
    assert names(built) == ["rows at s0=4, s1=6"]
    for shape in ((5, 6), (4, 7), (1, 1), (0, 3), (4, 6)):
        x = torch.randn(*shape)
        torch.testing.assert_close(jitted(x), rows(x))
    counted = {k: n for k, n in stats().items() if "verified" not in k}
    assert counted == {"graphs": 1, "breaks": 0, "recompiles": 0, "plain": 1}


def test_sizes_that_take_turns_have_one_each(built):
    jitted = jit(rows, dynamic=True)
    for _ in range(OFTEN + 2):
        for n in (3, 5, 8):
            x = torch.randn(n, 4)
            torch.testing.assert_close(jitted(x), rows(x))
    background.wait()
    assert names(built) == [f"rows at s0={n}, s1=4" for n in (3, 5, 8)]
    for n in (3, 5, 8, 9):
        often(jitted, rows, torch.randn(n, 4), times=1)


def test_sizes_that_are_always_others_have_none(built):
    jitted = jit(rows, dynamic=True)
    for k in range(20 * OFTEN):
        jitted(torch.randn(2 + k * 7 % 61, 4))
    background.wait()
    assert built == []


def test_at_most_four(built):
    jitted = jit(rows, dynamic=True)
    for n in range(3, 10):
        often(jitted, rows, torch.randn(n, 4))
    assert len(names(built)) == 4


def test_what_is_written_and_viewed(built):
    def step(x, state):
        state.mul_(0.5).add_(x.sum(0))
        return x[1:], state.t(), x.reshape(-1) + 1

    jitted = jit(step, dynamic=True)
    x, own, other = torch.randn(4, 6), torch.zeros(6), torch.zeros(6)
    for _ in range(OFTEN + 2):
        version = own._version
        found, expected = jitted(x, own), step(x, other)
        torch.testing.assert_close(found, expected)
        assert own._version > version
        background.wait()
    torch.testing.assert_close(own, other)
    assert found[0]._base is x and found[1]._base is own
    assert len(names(built)) == 1


def test_strides_are_sizes_too(built):
    def fn(x):
        return x * 2 + x.t().contiguous().t()

    jitted = jit(fn, dynamic=True)
    wide = torch.randn(8, 40)
    often(jitted, fn, wide[:, :6])
    often(jitted, fn, wide[:, :6].clone())
    often(jitted, fn, torch.randn(8, 30)[:, :6], times=1)


def test_numbers_that_vary_stay_arguments(built):
    def fn(x, step):
        return x * step + step

    jitted = jit(fn, dynamic=True)
    x = torch.randn(4, 6)
    for step in range(2 * OFTEN):
        torch.testing.assert_close(jitted(x, step), fn(x, step))
        background.wait()
    assert len(names(built)) == 1


def test_numbers_computed_from_sizes_are_known(built):
    def fn(x):
        n = x.shape[0] + 1
        return x * (1.0 / n) + n / 3, x[: int(n * 0.5)] * 2, n / 2

    often(jit(fn, dynamic=True), fn, torch.randn(5, 6))
    assert len(names(built)) == 1


def test_inference_tensors(built):
    def fn(x):
        return x.add_(1).relu()

    jitted = jit(fn, dynamic=True)
    with torch.inference_mode():
        for _ in range(OFTEN + 2):
            x = torch.randn(4, 6)
            torch.testing.assert_close(jitted(x.clone()), fn(x))
            background.wait()
    assert len(names(built)) == 1


def test_random_numbers_are_eagers(built):
    def fn(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    jitted = jit(fn, dynamic=True)
    x = torch.randn(4, 6)
    for seed in range(OFTEN + 4):
        torch.manual_seed(seed)
        found = jitted(x), torch.rand(())
        torch.manual_seed(seed)
        torch.testing.assert_close(found, (fn(x), torch.rand(())))
        background.wait()
    assert len(names(built)) == 1


def test_a_build_that_fails_leaves_the_general_version(built, monkeypatch):
    def at_sizes(captured, known):
        raise ValueError("no")

    monkeypatch.setattr(frameloom.backend.hot_shapes, "captured_at_sizes", at_sizes)
    monkeypatch.setattr(frameloom.backend.hot_shapes, "config", replace(config, verify=""))
    jitted = jit(rows, dynamic=True)
    often(jitted, rows, torch.randn(4, 6))
    assert [text.split(":")[1] for text in built] == [" stays with the general version"]


def test_none_where_the_same_digits_are_wanted(built):
    jitted = jit(rows, dynamic=True)
    torch.use_deterministic_algorithms(True)
    try:
        often(jitted, rows, torch.randn(4, 6))
    finally:
        torch.use_deterministic_algorithms(False)
    assert built == []


def test_other_threads(built):
    jitted = jit(rows, dynamic=True)
    wrong = []

    def work(n):
        for _ in range(4 * OFTEN):
            x = torch.randn(n, 6)
            if not torch.allclose(jitted(x), rows(x), atol=1e-5):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_is_kept_alive(built):
    weight = torch.randn(6, 6)
    gone = weakref.ref(weight)

    def make(weight):
        def fn(x, w):
            return x @ w + 1

        jitted = jit(fn, dynamic=True)
        often(jitted, fn, torch.randn(4, 6), weight)
        return jitted

    jitted = make(weight)
    del weight
    gc.collect()
    assert gone() is None
    gone = weakref.ref(jitted)
    del jitted
    gc.collect()
    assert gone() is None


SCRIPT = """
    import os, sys, torch, warnings
    from frameloom import jit
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
    def fn(x):
        return torch.softmax(x, -1) * x.shape[0] + x.sum(0) + {number}
    jitted = jit(fn, dynamic=True)
    x = torch.randn(4, 6)
    for _ in range(60):
        found = jitted(x)
    {then}
    torch.testing.assert_close(found, fn(x))
"""


@pytest.mark.parametrize(
    "then",
    ["pass", "sys.exit(0)", "pid = os.fork(); found = jitted(x); pid and os.waitpid(pid, 0)"],
    ids=["end", "exit", "fork"],
)
def test_python_ends_while_one_is_built(then, tmp_path):
    text = textwrap.dedent(SCRIPT.format(number=len(then), then=then))
    file = tmp_path / "script.py"
    file.write_text(text)
    done = fresh.run(text, file=file)
    assert done.returncode == 0 and done.stderr == ""
