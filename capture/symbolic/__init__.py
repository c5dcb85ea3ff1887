"""Symbolic and unbacked sizes and dynamic numbers: which ones are dynamic, what is assumed about them, how
ops take them.

In: the sizes and numbers of earlier calls. Out: symbolic numbers in the graph, and guards on them."""
