"""Speculation on data: predictions, checks at run time, and calls that are hoisted out of the graph."""
