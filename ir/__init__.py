"""The loop IR: what a captured graph becomes before it is code.

    dtype, ops, node, program   the data: element types, scalar ops, interned nodes, buffers and steps
    index, substitute           algebra on indices; renaming, binding and rebuilding of nodes
    interp.run                  reference interpreter, the meaning of everything here
    text.show, text.parse       readable form of programs
    verify.verify               the rules of node.py and program.py, checked
    symbolic/                   sizes as polynomials, what is known of them
    lower.lower                 ATen graph -> Program of one-store kernels and library calls
    rewrite.simplify, rules/    exact rewrites of scalar expressions
    passes/                     Program -> Program: fusion into fewer, larger kernels, places of temporaries in the arena
    library                     facts about library calls

Import the modules by path; the package imports none of them.
"""
