"""Compiled graphs as autograd nodes: saved tensors, backward passes, and the histories and views of
results."""
