"""Single calls whose arguments are drawn; `python -m tests.sweeps arguments` has more of them."""

from tests.sweeps.arguments import sweep_arguments


def test_calls_are_as_in_eager():
    assert not [*sweep_arguments(seed=1, count=350)]
