"""The recorder: runs torch calls on Fakes and writes down the ATen ops they come to, as a functional graph.

In: calls of torch functions.  Out: a `CapturedGraph` (captured_graph.py)."""
