"""Programs that are too large to follow stop with a reason and with advice, in reasonable time."""

import pytest
import torch

from frameloom.capture.interpreter import step_limits
from frameloom.capture.recording import views as record_views
from tests.capture.capturing import captured

X = torch.ones(2)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(step_limits, "MAX_TORCH_CALLS", 50)
    monkeypatch.setattr(step_limits, "MAX_TENSORS", 200)
    monkeypatch.setattr(step_limits, "MAX_IDLE_STEPS", 500)
    monkeypatch.setattr(record_views, "MAX_VIEWS", 20)
    monkeypatch.setattr(record_views, "MAX_SPLIT_VIEWS", 100)


def test_many_operations():
    def f(x):
        for _ in range(100):
            x = x + 1
        return x

    (reason,) = captured(f, X, graphs=0).plain
    assert (
        "more than 50 calls of PyTorch" in reason
        and "try: " in reason
        and "test_limits.py" in reason
    )


def test_many_pieces():
    def f(x):
        for _ in range(30):
            y = x.expand(20).unbind()[-1]
        return y + 1

    (reason,) = captured(f, torch.ones(1), graphs=0).plain
    assert "more than 200 tensors" in reason and "try: " in reason


@pytest.mark.parametrize(
    "cut", [lambda x: x.unbind(), lambda x: x.split(1), lambda x: x.chunk(101)]
)
def test_many_pieces_of_one_tensor(cut):
    def f(x):
        return cut(x.expand(101) + 1)[-1] * 2

    found = captured(f, torch.ones(1), graphs=2)
    assert [b.kind for b in found.breaks] == ["too_large"]


def test_endless_loop_of_operations():
    def f(x):
        n = 0
        while True:
            x = x + 1
            n += 1
            if n > 1000:
                raise ValueError("enough")

    (reason,) = captured(f, X, graphs=0).plain
    assert "try: " in reason


def test_loop_without_operations():
    def f(x):
        return x + sum([n * n for n in range(1000)])

    (reason,) = captured(f, X, graphs=0).plain
    assert "without a tensor operation" in reason and "try: " in reason


def test_views_of_views():
    def f(x):
        y = x
        for _ in range(30):
            y = y.view(2)
        return y + 1

    assert captured(f, X).breaks[0].kind == "too_large"
