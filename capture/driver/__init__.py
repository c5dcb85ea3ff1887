"""Captures one call: interprets it, compiles the graph, and makes the entry that later calls run."""
