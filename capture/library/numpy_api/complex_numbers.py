"""Arithmetic of complex numbers by the formulas of NumPy's loops: PyTorch's differ where parts are infinite."""

from __future__ import annotations

from typing import Any

import torch


def _parts(operand: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    real, imaginary = torch.view_as_real(operand.resolve_conj()).unbind(-1)
    return real, imaginary


def _add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    (a, b), (c, d) = _parts(left), _parts(right)
    return torch.complex(a + c, b + d)


def _subtract(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    (a, b), (c, d) = _parts(left), _parts(right)
    return torch.complex(a - c, b - d)


def _multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    (a, b), (c, d) = _parts(left), _parts(right)
    return torch.complex(a * c - b * d, a * d + b * c)


def _square(operand: torch.Tensor) -> torch.Tensor:
    return _multiply(operand, operand)


def _divide(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Divides by the larger part of the divisor first (Smith's method)."""
    (a, b), (c, d) = _parts(left), _parts(right)
    by_real = c.abs() >= d.abs()
    large, small = torch.where(by_real, c, d), torch.where(by_real, d, c)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    real = torch.where(by_real, a + b * ratio, a * ratio + b) * scale
    imaginary = torch.where(by_real, b - a * ratio, b * ratio - a) * scale
    is_zero = (c == 0) & (d == 0)
    real = torch.where(is_zero, a / c.abs(), real)
    return torch.complex(real, torch.where(is_zero, b / c.abs(), imaginary))


LOOPS: dict[str, Any] = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "square": _square,
}  # fmt: skip
