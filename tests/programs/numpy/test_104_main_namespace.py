"""Calls of functions of NumPy's main namespace; `python -m tests.sweeps numpy` has more of them."""

import pytest

from tests.fuzz.interpret import interpreted
from tests.sweeps.numpy_calls import differences

SAMPLE = "add sum where concatenate sort median clip diff cumsum average nan_to_num outer".split()


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_calls(name):
    with interpreted():
        assert differences([name], ("float32", "int64"), 3)[0] == []
