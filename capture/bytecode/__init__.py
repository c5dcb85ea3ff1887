"""Bytecode as data: instructions, facts about opcodes, liveness, and writing new code.

In: code objects of any supported CPython.  Out: lists of instructions, and code objects made of them.  Imports nothing of the other packages
of `capture`; what differs between versions of CPython is told in `opcodes.py`."""
