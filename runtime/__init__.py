"""What runs compiled programs: the plan (`plan/`, C++), PyTorch reached without its headers (`torch_abi/`), compilers and caches (`build/`).

In: a specification of plain data (`spec.py`), and the libraries of its kernels.  Out: a plan, which is called with tensors and numbers.
Nothing here knows of the loop IR or of capture; only the floor (`jit/config`, `jit/errors`, `jit/debug`) is imported.
"""
