"""Infers sizes, strides and dtypes of an op's results without running it, also for symbolic sizes.

In: an ATen op and its arguments. Out: the layouts of its results. A rule for an op is in the file of its kind
(`*_rules.py`) and is found through `registry.py`.
"""
