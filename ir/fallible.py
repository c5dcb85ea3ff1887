"""Which ops of PyTorch raise depending on what their tensors hold: these are not dropped where nobody uses their results."""

from __future__ import annotations

# How their names begin.
FALLIBLE = (
    "index", "gather", "scatter", "embedding", "take", "put", "nll_loss", "linalg", "cholesky", "inverse", "multinomial",
    "assert", "one_hot", "lu", "solve", "bincount", "floor_divide", "remainder", "fmod", "div", "binary_cross_entropy", "max_unpool",
    "ctc_loss", "repeat_interleave", "bernoulli", "normal", "histc", "segment_reduce",
)  # fmt: skip
DIVISIONS = ("div", "floor_divide", "remainder", "fmod")


def may_raise(target: str, is_floating: bool) -> bool:
    """`target` is an ATen overload such as "aten.div.Tensor"; `is_floating`: whether it computes such numbers, which can be divided by 0.
    What the program's own ops do is not known."""
    namespace, _, op = target.partition(".")
    if namespace not in ("aten", "prims"):
        return True
    name = op.lstrip("_")
    return name.startswith(FALLIBLE) and not (is_floating and name.startswith(DIVISIONS))
