"""Sizes and numbers that vary from call to call, or that the data decides: which do, what is assumed of them, how ops take them.

In: what earlier calls had.  Out: symbolic numbers in the graph, and guards on them."""
