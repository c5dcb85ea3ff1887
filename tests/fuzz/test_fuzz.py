"""A few random programs, those that once failed, and that the judge and the shrinker see what they are there for."""

import ast
import os
from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.fuzz import judge as judging
from tests.fuzz import noise, runner
from tests.fuzz.grammar import Program
from tests.fuzz.interpret import within
from tests.fuzz.judge import judge
from tests.fuzz.noise import disturbed
from tests.fuzz.shrink import shrunk

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.py"))
INTERPRETED = runner.Way("loops")
SCRIPT = """\
import os
import torch
log = []
def helper(x):
    log.append(1)
    return x
def fn(x, y):
    a = x + 1
    b = helper(a) * 2
    for k in range(2):
        b = b + k
    y.mul_(2)
    {}
    return b, y
def arguments():
    return torch.ones(3), torch.ones(4)
def state():
    return [log]
STEPS = [(arguments, "", None), (arguments, "no_grad", None)]
OPTIONS = dict(dynamic=False)
"""


@pytest.fixture(scope="module", autouse=True)
def prepared():
    runner.prepare()


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_programs_that_once_failed(path):
    assert (found := judge(path.read_text(), path.name)) is None, str(found)


@pytest.mark.parametrize("first", range(0, 24, 12))
def test_random_programs(first):
    found = [v for v in runner.run(range(first, first + 12), INTERPRETED) if v.kind]
    assert not found, "\n".join(f"{v.seed}: {v.text}" for v in found)


def test_a_seed_makes_one_program():
    assert Program(7).text == Program(7).text
    ast.parse(Program(7).text)


# What the plain side of a script does, and the jitted one does not: one of each sort that is compared.
WRONG = {
    "value of result": "b = b + 0.001",
    "tree of result": "b = b[:2]",
    "for ValueError": "raise ValueError('no')",
    "printed": "print('here')",
    "version": "x.add_(0)",
    "random state": "torch.rand(1)",
    "aliasing": "b = y[:3]",
}


@pytest.mark.parametrize("kind", WRONG)
def test_the_judge_sees(kind):
    class Other(judging.Side):
        def __init__(self, text, name, jitted):
            right = "b = y[:3].clone()" if kind == "aliasing" else "pass"
            super().__init__(text.replace("pass", right if jitted else WRONG[kind]), name, False)

    with mock.patch.object(judging, "Side", Other):
        found = judge(SCRIPT.format("pass"))
    assert found is not None
    assert kind in found.kind, found


def test_a_child_that_dies_is_told_with_its_program():
    kind, _ = runner.judged_alone(SCRIPT.format("os.abort()"), INTERPRETED)
    assert kind == "crash SIGABRT"


def test_a_child_that_hangs_is_told():
    loop = SCRIPT.format("\n    while True: pass")
    assert runner.judged_alone(loop, runner.Way("loops", seconds=2.0))[0] == "hang"


def test_nothing_runs_behind_a_device_that_stopped():
    stops = "from tests.fuzz import support; support.settle = lambda: torch.zeros(2).view(3)"
    items = [(0, SCRIPT.format("pass")), (1, SCRIPT.format(stops)), (2, SCRIPT.format("pass"))]
    found = [(v.seed, v.kind) for v in runner._in_process(items, INTERPRETED)]
    assert found == [(0, ""), (1, runner.UNDRAWN)]


def test_a_child_that_dies_says_why():
    _, text = runner.judged_alone(
        SCRIPT.format("os.write(2, b'because'); os._exit(1)"), INTERPRETED
    )
    assert "because" in text


def test_shrinking_keeps_what_fails():
    small, _ = shrunk(SCRIPT.format("os.abort()"), "crash SIGABRT", INTERPRETED, 20.0)
    assert "os.abort()" in small
    assert len(small.splitlines()) < 12
    assert "helper" not in small


def test_the_corpus_says_what_was_found():
    assert all(path.read_text().startswith("# seed ") for path in CORPUS)
    assert os.path.commonpath(CORPUS)


@pytest.mark.parametrize(
    "kind, does", [("hang", "while True: pass"), ("crash SIGABRT", "__import__('os').abort()")]
)
def test_a_program_that_does_not_end_well_plainly_is_not_judged(kind, does, monkeypatch):
    script = f"def fn():\n    {does}\nSTEPS = [(tuple, '', None)]\nOPTIONS = {{}}\n"
    way = runner.Way("loops", seconds=2.0)
    first = runner.Verdict(0, kind, "", script)
    monkeypatch.setattr(runner, "_in_process", stopped_once(first, runner._in_process))
    assert [v.kind for v in runner.run([0], way)] == [runner.UNDRAWN]


def stopped_once(verdict, then):
    """In place of the first process."""
    left = [verdict]
    return lambda items, way: iter([left.pop()]) if left else then(items, way)


@pytest.mark.parametrize("modes", ["", "inference"])
def test_interpreted_results_that_share_memory_are_two(modes):
    script = (
        "import torch\ndef fn(x):\n    t = x * 2\n    return t, t.view_as(x), t.detach()\n"
        "def drive(fn, x):\n    made = fn(x)\n    made[0].add_(1)\n"
        "    return made, [t._version for t in made if not t.is_inference()]\n"
        f"STEPS = [(lambda: (torch.ones(3),), {modes!r}, None)]\nOPTIONS = {{}}\n"
    )
    with within("loops"):
        assert judge(script) is None


def test_memory_that_nobody_has_written_is_no_difference():
    """One side of the judge's leaves memory behind for the other."""
    script = (
        "import torch\ndef fn(x):\n    x = x * 1\n    try:\n        y = x.expand(3, 3)\n        torch.cat([y, y], out=y)\n"
        "    except RuntimeError:\n        return y\n"
        "STEPS = [(lambda: (torch.ones(3),), '', None)]\nOPTIONS = {}\n"
    )
    assert judging._is_unwritten(script, "script", 0, "value of result")
    assert not judging._is_unwritten(SCRIPT.format("pass"), "script", 0, "value of result")


def test_what_eager_computes_roughly_is_rounding():
    """A whole number, which noise leaves: eager's own vectors of it are off by a fifth."""
    script = (
        "import torch\ndef fn(x):\n    return torch.nn.functional.gelu(x.fill_(-5))\n"
        "STEPS = [(lambda: (torch.ones(3),), '', None)]\nOPTIONS = {}\n"
    )
    with within("loops"):
        assert judge(script) is None


def test_gradients_that_cancel_are_rounding():
    """Those of the second operand are 1e8 and -1e8 beside small ones: whole numbers, of which sums in another order lose others."""
    script = (
        "import torch\nfrom tests.fuzz.support import tensor\nimport torch.nn.functional as F\ndef fn(x, y):\n    z = y\n"
        "    made = F.cosine_similarity(y - z, y)\n    x *= z\n    return x, made\n"
        "STEPS = [(lambda: (tensor([3, 3], 'float32', 0, grad='made'), tensor([3, 3], 'float32', 1, 'inner', grad='leaf')), '', None)]\n"
        "OPTIONS = {}\n"
    )
    with within("loops"):
        assert judge(script) is None


def test_noise_reaches_doubles():
    x = torch.tensor([2.0, 3.0, 6.0], dtype=torch.float64)
    with disturbed(1, of_ops=True), noise.applied():
        off = x.tanh()
    assert not torch.equal(off, x.tanh())


def test_memory_beyond_a_result_is_no_difference():
    """Eager's mean lies in the memory of what it is the mean of."""
    script = (
        "import torch\ndef fn(x):\n    loss = torch.nn.functional.mse_loss(x, x + 1)\n"
        "    return loss.view(1).fill_(1), loss.as_strided((2,), (1,), 1)\n"
        "STEPS = [(lambda: (torch.ones(3),), '', None)]\nOPTIONS = {}\n"
    )
    with within("loops"):
        assert judge(script) is None
