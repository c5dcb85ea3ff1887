"""Tensors without data, and properties of ATen ops: what their schemas state, functional forms of views and
in-place ops.

In: tensors of the program. Out: `Fake` tensors, on which ops can be recorded.
"""
