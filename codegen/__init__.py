"""Code generation: `generate(kernels)` gives C++ sources; kernels with one structure share a text."""

from frameloom.codegen.cpp.module import KernelEntry, SourceFile, generate

__all__ = ["KernelEntry", "SourceFile", "generate"]
