"""Compiled graphs as nodes of autograd: what they save, their backward passes, and the program's view of their results."""
