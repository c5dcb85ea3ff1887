"""From a captured graph's program to a plan that runs: which compiler makes which kernel, and what is built beside the program.

In: a Program of the loop IR.  Out: a plan of the native runtime."""
