"""Symbolic sizes: polynomials over symbols, their ranges, and the conditions that hold for them."""
