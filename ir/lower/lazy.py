"""Lazy views, which PyTorch conjugates or negates when they are read (`x.conj()`, `x.imag` of such a view).

Kernels and library calls get a copy to which this is applied; the program gets a lazy view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.lower.geometry import origin, view_of
from frameloom.ir.lower.layout.relayout import with_visible_strides
from frameloom.ir.lower.table import Ref
from frameloom.ir.program import Extern, Kind, View

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering

RESOLVED = {"conj": "aten._conj_physical.default", "neg": "aten.neg.default"}


def bits_of(val: Any) -> tuple[str, ...]:
    """Returns the lazy operations of a captured value, which are not yet applied to its memory."""
    if not isinstance(val, torch.Tensor):
        return ()
    return ("conj",) * bool(val.is_conj()) + ("neg",) * bool(val.is_neg())


def view(graph: Lowering, node: torch.fx.Node, val: Any) -> Ref:
    """Lowers a view that is lazy, or whose base is."""
    parent: Any = node.args[0]
    base = graph.layouts.raw.get(parent) or with_visible_strides(graph, parent)
    raw = graph.ref(base.buffer, val)
    bits = bits_of(val)
    if not bits:
        return raw
    graph.layouts.raw[node] = value = raw
    if any(u.op != "output" for u in node.users):
        for bit in bits:
            value = _called(graph, node, RESOLVED[bit], f"{node.name}_{bit}_done", value)
    return value


def returned(graph: Lowering, node: torch.fx.Node) -> View:
    """Returns the output for a lazy view: a View with its lazy operations."""
    return replace(view_of(graph.layouts.raw[node]), bits=bits_of(node.meta["val"]))


def _called(graph: Lowering, node: torch.fx.Node, target: str, name: str, x: Ref) -> Ref:
    """Adds a library call on one tensor and returns its result."""
    result = graph.fresh(name, x, x.shape, dense(x.shape, x.strides), Kind.EXTERN)
    graph.steps.append(Extern(target, (view_of(x),), (), (result.buffer,), origin(node)))
    return result


def dense(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Returns strides without gaps and overlap, with the dimensions in the same order: the layout of eager's
    copies."""
    dense_strides, step = [0] * len(shape), 1
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        dense_strides[d] = step
        step *= max(shape[d], 1)
    return tuple(dense_strides)
