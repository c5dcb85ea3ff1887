"""Functions of the rows, the columns or all of a matrix."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.sweeps.elementwise import Table

NAMES = (
    "sum mean prod amax amin max min argmax argmin any all std var logsumexp median nanmedian mode count_nonzero cumsum cumprod cummax "
    "cummin logcumsumexp sort argsort softmax log_softmax nansum nanmean aminmax diff msort flip"
).split()


def _table() -> Table:
    made: Table = {}
    for name in NAMES:
        fn = getattr(torch, name)
        made[name] = fn
        for dim in (0, 1):
            made[f"{name} {dim}"] = lambda x, fn=fn, dim=dim: fn(x, dim=dim)
            made[f"{name} {dim} kept"] = lambda x, fn=fn, dim=dim: fn(x, dim=dim, keepdim=True)
    for p in (0, 1, 2, 3, -1, 0.5, math.inf, -math.inf):
        made[f"norm {p}"] = lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1)
    for c in (0, 1, 2):
        made[f"var corrected by {c}"] = lambda x, c=c: x.var(1, correction=c)
    for k in (1, 2, 3):
        made[f"topk {k}"] = lambda x, k=k: x.topk(k, 1)
        made[f"least {k}"] = lambda x, k=k: x.topk(k, 0, largest=False)
        made[f"kthvalue {k}"] = lambda x, k=k: x.kthvalue(k, 1)
    for dtype in (torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool):
        for name in ("sum", "cumsum", "prod", "mean", "softmax"):
            made[f"{name} in {dtype}"] = lambda x, n=name, d=dtype: getattr(x, n)(1, dtype=d)
    return made | {
        "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
        "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
        "normalize": lambda x: F.normalize(x, dim=1),
        "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.int64)),
        "nll_loss": lambda x: F.nll_loss(x, torch.zeros(len(x), dtype=torch.int64)),
        "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(0)),
        "huber_loss": lambda x: F.huber_loss(x, x * 2),
        "max_pool1d": lambda x: F.max_pool1d(x[None], 2, return_indices=True),
        "padded max_pool1d": lambda x: F.max_pool1d(x[None], 3, 1, 1),
        "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x[None], 2),
        "quantile": lambda x: torch.quantile(x, 0.3, dim=1),
        "bincount": lambda x: torch.bincount(x.flatten()),
        "trace": lambda x: x.trace(),
        "product": lambda x: x @ x.t(),
    }


TABLE = _table()
