"""Fusion (being written): for now every step stays as it is."""

from __future__ import annotations

from frameloom.ir.program import Program


def fuse(program: Program) -> Program:
    """`program` with fewer, larger kernels."""
    return program
