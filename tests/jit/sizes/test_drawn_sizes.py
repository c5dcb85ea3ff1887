"""Functions of numbers that decide sizes; `python -m tests.sweeps sizes` has more of them."""

from tests.sweeps.sizes import sweep_sizes


def test_calls_are_as_in_eager():
    assert not [*sweep_sizes(seed=1, count=100)]
