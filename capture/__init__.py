"""Capture: one call of a Python function becomes graphs of tensor operations, guards, and code for the rest.

In: a code object and the arguments of a call.  Out: entries of a jitted function, each with the guards under which it is right.
`driver` begins; the interpreter reads the bytecode, the recorder writes down the torch calls, `resume` leaves a frame that cannot be captured whole.
The packages are layers: each imports from those below it (`tests/test_structure.py` has the order).  Of ours they import `ir` alone.
"""
