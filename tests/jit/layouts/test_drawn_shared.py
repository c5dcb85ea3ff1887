"""Drawn programs whose results share memory; `python -m tests.sweeps shared` has more of them."""

from tests.sweeps.shared import sweep_shared


def test_results_are_known_as_in_eager():
    assert not [*sweep_shared(count=60)]
