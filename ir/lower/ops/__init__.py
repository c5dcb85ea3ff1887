"""Lowerings, one file per family of ops: `@lowering(...)` puts a function into the table (table.py)."""
