"""Functions called with drawn layouts, one after the other; `python -m tests.sweeps layouts` has more of them."""

from tests.sweeps.layouts import sweep_layouts


def test_calls_are_as_in_eager():
    assert not [*sweep_layouts(seed=1, count=150)]
