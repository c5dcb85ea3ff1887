"""PyTorch's Python functions and classes that are more than calls of ops: autograd, hooks, optimizers, distributions."""
