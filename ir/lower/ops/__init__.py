"""Lowerings, one file per family of ops: `@lowering(...)` adds a function to the table (table.py)."""
