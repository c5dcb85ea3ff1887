"""Frameloom: a just-in-time compiler for Python programs that use PyTorch."""

__version__ = "0.1.0"
