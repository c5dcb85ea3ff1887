"""Whatever raises: PyTorch's settings are behind it as the plain program leaves them, and the program's own handlers have it."""

import pytest
from tests.sweeps.exceptions import differences


@pytest.mark.parametrize("setting", ["deterministic", "function mode"])
def test_a_position_that_is_all_there_is_to_check_before_a_break(setting):
    assert not [*differences(setting, "item", "before")]
