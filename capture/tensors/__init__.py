"""Tensors without data, and facts about ATen ops: what their schemas say, views and in-place ops as functions.

In: tensors of the program.  Out: `Fake`, which ops can be recorded on."""
