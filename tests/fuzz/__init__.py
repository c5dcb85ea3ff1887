"""Whole programs, drawn at random, run plainly and jitted: `python -m tests.fuzz --programs 200`.  docs/testing.md tells how it works.

`grammar` draws the text of a script; `judge` runs one and says what differs; `runner` does so in processes that may die or
hang; `shrink` makes a script that fails small.
"""
