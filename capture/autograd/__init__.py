"""Gradients of a recording: the backward graph, what is saved for it, and what autograd sees of the call.

In: a recording that autograd has followed. Out: `Backward`, a part of the captured graph."""
