"""Bytecode as data: instructions, properties of opcodes, liveness, and writing new code.

In: code objects of any supported CPython. Out: lists of instructions, and code objects made of them. Imports
nothing from the other packages of `capture`; `opcodes.py` has the differences between versions of CPython.
"""
