"""Turns the program of a captured graph into a plan: chooses compilers for kernels, and compiles in the
background.

In: a Program of the loop IR.  Out: a plan of the native runtime."""
