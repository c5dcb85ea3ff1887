"""PyTorch's Python functions and classes that do more than call ops: autograd, hooks, optimizers..."""
