"""Sizes that are known only when a call comes: polynomials over symbols, their ranges, and what is known of them."""
