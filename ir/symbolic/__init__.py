"""Sizes that are known only when a call comes: polynomials over symbols, their ranges, and what is known of them.

Imported by every package; imports nothing of the others but `config` and `errors`."""
