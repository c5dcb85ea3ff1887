"""Rules and layouts of shapes/registry.py for library functions: linear algebra, Fourier transforms, histograms,
quantization, recurrent layers. Most have no meta kernel, or one with another layout."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.iteration import empty
from frameloom.capture.shapes.registry import Rule, layout, rule, sized_rule
from frameloom.capture.tensors.sized import dense_strides, empty_strided
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten


@rule(aten.ctc_loss.IntList, aten.ctc_loss.Tensor)
def _ctc_loss(
    func: Any, x: torch.Tensor, targets: Any, lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: int = 1, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    return empty(x.shape[1:2] if reduction == 0 and x.dim() == 3 else (), x.dtype)


@rule(aten.linalg_lstsq.default)
def _lstsq(
    func: Any, a: torch.Tensor, b: torch.Tensor, rcond: Any = None, *, driver: str | None = None
) -> Any:
    """For LAPACK's drivers on the CPU, and matrices of full rank. The solution is the upper part of the right
    side's memory."""
    (*batch, rows, columns), driver = a.shape, driver or "gelsy"
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    width, height = 1 if is_vector else b.shape[-1], max(rows, columns)
    sides = empty((*batch, width, height), a.dtype).mT[..., :columns, :]
    gives_rank, gives_values = driver != "gels", driver in ("gelss", "gelsd")
    gives_residuals = rows > columns and driver != "gelsy"
    real = a.dtype.to_real()
    return (
        sides[..., 0] if is_vector else sides,
        empty((*batch, width) if gives_residuals else (0,), real),
        empty(batch if gives_rank else (0,), torch.int64),
        empty((*batch, min(rows, columns)) if gives_values else (0,), real),
    )


@rule(
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
)
def _fake_quantized(func: Any, x: torch.Tensor, *args: Any) -> Any:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


@rule(aten.geqrf.default)
def _geqrf(func: Any, a: torch.Tensor) -> Any:
    if a.dim() < 2:
        return None
    *batch, rows, columns = a.shape
    return empty((*batch, columns, rows), a.dtype).mT, empty((*batch, min(rows, columns)), a.dtype)


def _by_columns(meta: torch.Tensor) -> torch.Tensor:
    """Returns matrices in column-major order, as LAPACK writes them."""
    rows, columns = meta.dim() - 2, meta.dim() - 1
    order = (rows, columns, *reversed(range(rows)))
    return empty_strided(meta.shape, dense_strides(meta.shape, order), meta.dtype)


@layout(aten._linalg_svd.default, aten.linalg_eig.default, devices=("cpu",))
def _last_by_columns(meta: Any, *args: Any, **options: Any) -> Any:
    *others, last = meta
    return *others, last if last.dim() == 1 else _by_columns(last)  # empty without vectors


@layout(aten.linalg_vector_norm.default)
def _vector_norm(
    meta: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, **options: Any
) -> Any:
    """Uses the shape and strides of a sum. Meta tensors use the one-element case for every reduction of
    dimensions of size 1. This gives other strides and, for one complex number in 2.11, other dimensions."""
    summed = x.meta.sum(dim, keepdim)
    return empty_strided(summed.shape, summed.stride(), meta.dtype)


def _fourier(func: Any) -> Rule:
    """Runs the library op on zeros: the order in which it handles the dimensions depends on the library that
    PyTorch was built with."""

    def run(meta: Any, x: Any, *args: Any, **options: Any) -> Any:
        zeros = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu").zero_()
        return func(zeros, *args, **options).to("meta")

    return run


for _op in (aten._fft_c2c.default, aten._fft_r2c.default, aten._fft_c2r.default):
    layout(_op, devices=("cpu",))(_fourier(_op))


@rule(aten.histogram.bin_ct)
def _histogram_of_count(func: Any, x: torch.Tensor, bins: int = 100, **options: Any) -> Any:
    return empty(bins, x.dtype), empty(bins + 1, x.dtype)


@rule(aten.histogram.bins_tensor)
def _histogram_of_edges(func: Any, x: torch.Tensor, bins: torch.Tensor, **options: Any) -> Any:
    if bins.dim() != 1 or not bins.numel():
        return None
    return _histogram_of_count(func, x, bins.numel() - 1)


@rule(aten._histogramdd_bin_edges.default)
def _histogramdd_edges(func: Any, x: torch.Tensor, bins: list[int], **options: Any) -> Any:
    return [empty(n + 1, x.dtype) for n in bins]


@rule(aten._histogramdd_from_bin_cts.default)
def _histogramdd_of_counts(func: Any, x: torch.Tensor, bins: list[int], **options: Any) -> Any:
    return empty(bins, x.dtype)


@rule(aten._histogramdd_from_bin_tensors.default)
def _histogramdd_of_edges(
    func: Any, x: torch.Tensor, bins: list[torch.Tensor], **options: Any
) -> Any:
    return empty([edges.numel() - 1 for edges in bins], x.dtype)


@sized_rule(aten.histc.default)
def _histc(func: Any, x: Any, bins: Int, *rest: Any) -> Any:
    return empty([bins], x.dtype) if bins > 0 else None


@sized_rule(aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input, aten.lstm.input)
def _recurrent(
    func: Any, x: Any, hidden: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    states = hidden if isinstance(hidden, list | tuple) else [hidden]
    length, batch = (1, 0) if batch_first else (0, 1)
    width = states[0].shape[-1] * (2 if both else 1)
    shape = [x.shape[length], x.shape[batch], width]
    out = empty(shape, x.dtype)
    if batch_first:
        strides = out.stride()
        out = empty_strided([shape[1], shape[0], width], [strides[1], strides[0], 1], x.dtype)
    return out, *(empty(s.shape, x.dtype) for s in states)
