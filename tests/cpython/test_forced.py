"""Fast ones of CPython's test modules end under forced capture as they do without; `make cpython` runs them all."""

import pytest

from tests.cpython.run import run_module


@pytest.mark.parametrize("module", ["test_raise", "test_with", "test_super", "test_unpack_ex"])
def test_module(module):
    result = run_module(module)
    assert result.plain.tests and result.forced.counts
    assert result.unlisted == []
    captured = result.forced.counts["captured"]
    assert captured["whole"] > 50 and captured["broken"] > 50
    assert result.forced.counts["calls"]["code"] > 1000
    assert not result.forced.counts["bugs"]
