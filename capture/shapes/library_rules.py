"""Rules of shapes/registry.py for library functions that have no meta kernel, or one that does not check
arguments."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.registry import broadcast, empty, rule

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


PARTS = {
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


@rule(*PARTS)
def _part_put_back(
    func: Any, x: torch.Tensor, part: torch.Tensor, *where: Any, **named: Any
) -> Any:
    """Raises for a part of a wrong size: meta kernels accept any size, and some of PyTorch 2.11 keep the
    strides of expanded tensors."""
    wanted = PARTS[func](x, *where, **named).shape
    if part.shape != wanted:
        raise RuntimeError(f"expected src to have a size equal to the slice of self: {wanted}")
    expanded = any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))
    # For tensors without elements, meta kernels other than these drop the strides.
    return torch.empty_like(x) if expanded and x.numel() else None


@rule(
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
)
def _fake_quantized(func: Any, x: torch.Tensor, *args: Any) -> Any:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


@rule(
    aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor, aten.poisson.default,
)  # fmt: skip
def _contiguous_draw(func: Any, x: Any, second: Any = None, **options: Any) -> Any:
    """The result is contiguous, for any layout of the parameters; the meta kernels depend on their layout."""
    given = [a for a in (x, second) if isinstance(a, torch.Tensor)]
    shape = broadcast(*(a.shape for a in given))
    numbers = [a for a in (second,) if isinstance(a, float)]
    if shape is None or given[-1].is_complex() or any(not a >= 0 for a in numbers):
        return None  # their meta kernels raise
    return empty(shape, given[0].dtype)
