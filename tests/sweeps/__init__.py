"""Sweeps over values and dtypes that samples do not meet: special values, all 16-bit numbers, dtypes that ops refuse."""
