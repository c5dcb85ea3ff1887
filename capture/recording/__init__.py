"""The recorder: runs torch calls on Fakes and records their ATen ops as a functional graph.

In: calls of torch functions. Out: a `CapturedGraph` (captured_graph.py)."""
