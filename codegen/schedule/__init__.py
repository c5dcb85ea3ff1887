"""Decisions about loops, for both targets: which axis becomes lanes or blocks, what is cut, kept, or run by threads.

In: kernels of the loop IR.  Out: loop trees for C++, launches for Triton."""
