"""Runs compiled programs: the executor (`executor/`, C++ without Python), the Python type of a plan (`plan/`), access
to PyTorch without its headers (`torch_abi/`), compilers and caches (`build/`).

In: a specification of plain data (`spec.py`), and the libraries of its kernels.  Out: a plan, which is called
with tensors and numbers.
Nothing here depends on the loop IR or on capture; only the floor (`jit/config`, `jit/errors`, `jit/debug`) is
imported.
"""
