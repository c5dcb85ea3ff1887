"""Tensors whose classes compute ops in Python by `__torch_dispatch__`."""
