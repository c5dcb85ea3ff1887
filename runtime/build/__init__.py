"""Compilers as processes, and files on disk by their content: C++ to libraries, Triton to cubins.

In: source texts.  Out: libraries and functions on a device, each content built once."""
