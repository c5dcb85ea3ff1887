"""Runs compilers as processes and caches their results on disk by content: C++ to libraries, Triton to
cubins.

In: source texts.  Out: libraries and functions on a device; each content is built once."""
