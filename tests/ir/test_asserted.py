"""Conditions on sizes are noted under `python -O`, too: none is noted inside an `assert`."""

import pytest

from frameloom.ir.symbolic import asserted
from frameloom.ir.symbolic.compare import require
from frameloom.ir.symbolic.shape_env import ShapeEnv


def test_lines_of_asserts(tmp_path):
    path = tmp_path / "some.py"
    path.write_text("x = 1\nassert (\n    x == 1\n), 'text'\ny = x == 2\n")
    assert asserted.asserted_lines(str(path)) == {2, 3, 4}


def test_a_condition_in_an_assert_is_refused(monkeypatch):
    """This file is taken for one of ours."""
    monkeypatch.setattr(asserted, "ours", lambda path: path == __file__)
    size = ShapeEnv().symbol(5, None)
    with pytest.raises(AssertionError, match="noted in an assert"):
        assert size <= 7


def test_a_condition_that_is_required_is_noted():
    shape_env = ShapeEnv()
    size = shape_env.symbol(5, None)
    require(size <= 7, "too long")
    assert [str(n) for n in shape_env.at_least_0] and 7 - size in shape_env.at_least_0
    with pytest.raises(AssertionError, match="too long"):
        require(size <= 3, "too long")
