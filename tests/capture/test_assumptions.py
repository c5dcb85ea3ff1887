"""A compiled graph that raises means another run, unless the fault is our own and somebody looks for such."""

import pytest

from frameloom.capture._capture import RunPlainly
from frameloom.capture.assumptions import rerunning


def raising(_):
    raise IndexError("out of range")


def test_an_exception_means_a_plain_run():
    with pytest.raises(RunPlainly):
        rerunning(raising)(1)


def test_what_the_recorded_graph_raises_too_means_a_plain_run():
    with pytest.raises(RunPlainly):
        rerunning(raising, raising)(1)


def test_what_it_does_not_raise_comes_through():
    with pytest.raises(IndexError, match="out of range"):
        rerunning(raising, lambda x: x)(1)
