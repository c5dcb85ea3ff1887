"""Planted faults in the product: do the tests and the random programs notice them?  `python -m tests.mutants`, see docs/testing.md."""
