"""Tensors without data, and facts about ATen ops: what their schemas say, functional forms of views and
in-place ops.

In: tensors of the program. Out: `Fake` tensors, on which ops can be recorded.
"""
