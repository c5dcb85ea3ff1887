"""Interprets a frame: calls, operators, exceptions, and how the program's objects become values.

In: a code object and its arguments. Out: recorded calls, effects, and the state at the end or at a graph
break. The handlers of opcodes are in `opcodes/`.
"""
