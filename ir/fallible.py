"""Which ops raise, depending on the data of their tensors.

`may_raise` is for choices where a yes only costs time.  `never_raises` is for choices that are wrong if a
call raises after all.
"""

from __future__ import annotations

DIVISIONS = ("div", "floor_divide", "remainder", "fmod")
# Beginnings of op names, without leading underscores.
FALLIBLE = (
    "index", "gather", "scatter", "embedding", "take", "put", "nll_loss", "linalg", "cholesky", "inverse", "multinomial",
    "assert", "one_hot", "lu", "solve", "bincount", "binary_cross_entropy", "max_unpool", "ctc_loss", "repeat_interleave",
    "bernoulli", "normal", "histc", "segment_reduce", "poisson", "binomial", "masked_scatter", "multi_margin_loss",
    "multilabel_margin_loss", "pack_padded_sequence", "histogram", "fake_quantize", "quantize", "searchsorted", *DIVISIONS,
)  # fmt: skip
# Ops that report errors at once on a GPU; other kernels stop the device later.
FALLIBLE_ON_GPU = ("linalg", "cholesky", "inverse", "lu_solve", "assert", "repeat_interleave")
# Library calls that programs make often, and whose arguments the capture checks completely.
INFALLIBLE = (
    "mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "convolution", "mkldnn", "thnn_fused", "scaled_dot_product",
    "native_batch_norm", "native_layer_norm", "native_group_norm", "cudnn", "miopen", "to_copy", "cat", "clone", "copy",
    "max_pool", "avg_pool", "adaptive", "upsample", "native_dropout", "sort", "topk", "fft", "grid_sampler", "linear_pointwise",
)  # fmt: skip
NAMESPACES = ("aten.", "mkldnn.", "onednn.", "mkl.")
KNOWN = (*NAMESPACES, "prims.", "frameloom.")


def _word(target: str) -> str:
    """Returns the name of the op of a target such as "aten._unique2.default"."""
    parts = target.split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).lstrip("_")


def may_raise(target: str, of_floats: bool, on_gpu: bool = False) -> bool:
    """Whether the op may raise.  `of_floats`: the result has floating point numbers.  Ops of the program
    itself may raise."""
    if not target.startswith(KNOWN):
        return True
    word = _word(target)
    if not word.startswith(FALLIBLE_ON_GPU if on_gpu else FALLIBLE):
        return False
    return not (of_floats and word.startswith(DIVISIONS))


def never_raises(target: str) -> bool:
    return target.startswith(NAMESPACES) and _word(target).startswith(INFALLIBLE)
