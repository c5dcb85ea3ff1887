"""Reads at positions that depend on data: embedding, index_select, gather, indexing by tensors.

Loads are masked to the valid range, and a check raises eager's exception for an index outside of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.ir.dtype import DType
from frameloom.ir.index import add, index
from frameloom.ir.lower.expr import Expr, where
from frameloom.ir.lower.ops.copies import within
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.substitute import compare, conjunction
from frameloom.ir.symbolic.expr import Int, Size

POSITIONS = (DType.I64, DType.I32)


def data_index(ref: Ref, at: Sequence[Node]) -> Expr:
    """Returns an element of an index tensor, as I64."""
    if ref.dtype not in POSITIONS:
        raise Decline
    return read(ref, at).cast(DType.I64)


def inside(position: Expr, extent: Int) -> Node:
    """Returns 0 <= position < extent.  Declines an empty dimension: on a GPU eager raises for some such
    calls, and a check of ours would stop the device."""
    if not isinstance(extent, Size) and not extent:
        raise Decline
    return within(position.node, 0, extent)


def wrapped(position: Expr, extent: int) -> Expr:
    """Returns the position; a negative one counts from the end."""
    return where(position < 0, Expr(add(position.node, index(extent))), position)


def out_of_bounds(dim: int, extent: Int) -> str:
    if isinstance(extent, Size):
        raise Decline  # only the library's message can contain the size
    return f"index is out of bounds for dimension {dim} with size {extent}"


@lowering("aten.embedding.default", if_empty="library")
def embedding(
    call: Call, weight: Ref, indices: Ref, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Expr:
    at = call.at()
    row = data_index(indices, at[:-1])
    mask = inside(row, weight.shape[0])
    call.check(Expr(mask), "IndexError", "index out of range in self")
    return read(weight, [row.node, at[-1]], mask)


@lowering("aten.index_select.default", if_empty="library")
def index_select(call: Call, x: Ref, dim: int, indices: Ref) -> Expr:
    if x.ndim == 0:
        raise Decline
    dim = dimension(dim, x.ndim)
    at = call.at()
    position = data_index(indices, [at[dim]] if indices.ndim else [])
    mask = inside(position, x.shape[dim])
    call.check(Expr(mask), "IndexError", "index out of range in self")
    at[dim] = position.node
    return read(x, at, mask)


@lowering("aten.one_hot.default", if_empty="library")
def one_hot(call: Call, indices: Ref, classes: int) -> Expr:
    at = call.at()
    chosen = data_index(indices, at[:-1])
    call.check(chosen >= 0, "RuntimeError", "Class values must be non-negative.")
    few = Expr(compare(Op.LT, chosen.node, index(classes)))
    call.check(few, "RuntimeError", "Class values must be smaller than num_classes.")
    return Expr(compare(Op.EQ, chosen.node, at[-1])).cast(DType.I64)


@lowering("aten.gather.default", if_empty="library")
def gather(call: Call, x: Ref, dim: int, indices: Ref, sparse_grad: bool) -> Expr:
    if x.ndim == 0 or indices.ndim == 0:
        raise Decline
    dim = dimension(dim, x.ndim)
    at = call.at()
    position = data_index(indices, at)
    mask = inside(position, x.shape[dim])
    call.check(Expr(mask), "RuntimeError", out_of_bounds(dim, x.shape[dim]))
    at[dim] = position.node
    return read(x, at, mask)


@lowering("aten.index.Tensor", if_empty="library")
@lowering("aten._unsafe_index.Tensor")
def index_tensor(call: Call, x: Ref, indices: Sequence[Ref | None]) -> Expr:
    at, mask = indexed(call, x, indices, call.at())
    return read(x, at, mask)


def place_of_indices(x: Ref, indices: Sequence[Ref | None]) -> tuple[int, int]:
    """Returns where the dimensions of the index tensors are among those of the result: the first, and how
    many.  Declines masks."""
    chosen = [d for d, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    if not chosen or 0 in x.shape or any(t.dtype not in POSITIONS for t in tensors):
        raise Decline
    adjacent = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
    return chosen[0] if adjacent else 0, max(t.ndim for t in tensors)


def indexed(
    call: Call, x: Ref, indices: Sequence[Ref | None], out: list[Node]
) -> tuple[list[Node], Node]:
    """Returns (place in `x`, whether it is in range) for the position `out` of `x[indices]`."""
    first, ndim = place_of_indices(x, indices)
    shared, rest = out[first : first + ndim], out[:first] + out[first + ndim :]
    at: list[Node] = []
    masks = []
    remaining = iter(rest)
    for d in range(x.ndim):
        i = indices[d] if d < len(indices) else None
        if i is None:
            at.append(next(remaining))
            continue
        position = wrapped(data_index(i, shared), x.shape[d])
        mask = inside(position, x.shape[d])
        masks.append(mask)
        if "unsafe" not in call.target:
            call.check(Expr(mask), "IndexError", out_of_bounds(d, x.shape[d]))
        at.append(position.node)
    # A dimension of size 1 has no stride to go wrong, but its index is still checked.
    return at, conjunction(*masks)
