"""Sizes, strides and dtypes of an op's results, without running it; also for sizes that vary.

In: an ATen op and its arguments.  Out: how its results lie in memory.  A rule for an op stands in the file of its kind (`*_rules.py`) and is
found through `registry.py`."""
