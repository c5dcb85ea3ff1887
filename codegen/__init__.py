"""Code generation: `generate(kernels)` gives C++ sources; library calls are looked up in extern.py."""

from frameloom.codegen.cpp.module import KernelEntry, SourceFile, generate

__all__ = ["KernelEntry", "SourceFile", "generate"]
