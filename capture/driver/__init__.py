"""Capturing one call: interpret, compile the graph, and make the entry that later calls run."""
