"""The loop IR: the form between a captured graph and generated code.

    dtype, ops, node, program   the data: element types, scalar ops, interned nodes, buffers and steps
    index, substitute           algebra on indices; renaming, binding and rebuilding of nodes
    interp.run                  reference interpreter: it defines what a program means
    text.show, text.parse       readable form of programs
    verify.verify               checks the rules of node.py and program.py
    symbolic/                   sizes as polynomials, and the conditions that hold for them
    lower.lower                 ATen graph -> Program of one-store kernels and library calls
    rewrite.simplify, rules/    exact rewrites of scalar expressions
    passes/                     Program -> Program: fusion into fewer, larger kernels; memory plan
    library                     properties of library calls

Import the modules by path; the package imports none of them.
"""
