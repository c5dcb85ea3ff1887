"""Gradients of a recording: the backward graph, what is saved for it, and what autograd may see of the call.

In: a recording that autograd has followed.  Out: `Backward`, a part of the captured graph."""
