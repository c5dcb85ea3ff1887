"""Reads nodes of a graph (arguments, geometry, views), and converts them to Refs, stores and Views."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.table import Decline, Ref, Result, Update, positions
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind, Scatter, Store, View, leaves
from frameloom.ir.scatter import guard
from frameloom.ir.strides import overlaps
from frameloom.ir.substitute import space
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.expr import Size, number

VIEWS = frozenset({"aten._unsafe_view.default"})  # views whose schema does not say so
WRITE_BACK = "aten.copy_.default"


def origin(node: torch.fx.Node) -> tuple[str, ...]:
    """Returns the graph node and the user's line, for names and comments."""
    line = f"{node.name} = {node.target}"
    stack = node.meta.get("stack")
    return (f"{line}  # {stack}",) if stack else (line,)


_IS_VIEW: dict[Any, bool] = {}


def is_view(target: Any) -> bool:
    """Whether the op returns a view of its first argument."""
    if not isinstance(target, torch._ops.OpOverload):
        return False  # a Python function that was made for one graph
    if target not in _IS_VIEW:
        schema = target._schema
        returned = [r.alias_info for r in schema.returns]
        first = schema.arguments[0].alias_info if schema.arguments else None
        _IS_VIEW[target] = str(target) in VIEWS or bool(
            returned and returned[0] is not None and not returned[0].is_write and first is not None
        )
    return _IS_VIEW[target]


_SIGNATURES: dict[Any, list[tuple[str, bool, Any]]] = {}


def arguments_of(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Returns the arguments in the order of the schema, with defaults filled in."""
    signature = _SIGNATURES.get(target)
    if signature is None:
        signature = [(a.name, a.kwarg_only, a.default_value) for a in target._schema.arguments]
        _SIGNATURES[target] = signature
    arguments = list(args)
    for name, _, default in signature[len(args) :]:
        arguments.append(kwargs.get(name, default))
    return arguments


def result_of(val: Any) -> Result:
    if not is_tensor(val):
        raise Decline
    dtype = DType.of(val.dtype)
    shape, strides = tuple(map(number, val.shape)), tuple(map(number, val.stride()))
    if dtype is None or overlaps(shape, strides):
        raise Decline
    return Result(shape, strides, dtype, val.dtype)


def store_of(into: Ref | None, value: Expr) -> Store:
    assert into is not None and into.dtype is not None
    offset = linear(positions(into.shape), into.strides, into.offset)
    axes = space([extent for extent in into.shape if extent != 1])
    return Store(into.buffer, offset, value.cast(into.dtype).node, axes)


def scatter_of(into: Ref, update: Update) -> Store:
    assert into.dtype is not None
    offset = linear(list(update.at), into.strides, into.offset)
    # Positions that differ along an axis that is itself a coordinate hit different elements.
    own = {n.arg for n in update.at if n.op is Op.AXIS}
    along = tuple(a for a in update.axes if a not in own)
    value = update.value.cast(into.dtype).node
    return Store(
        into.buffer, guard(update.mask, offset), value, update.axes, Scatter(update.kind, along)
    )


def view_of(ref: Ref) -> View:
    retyped = ref.torch_dtype if ref.torch_dtype != torch_dtype_of(ref.buffer) else None
    return View(ref.buffer, ref.shape, ref.strides, ref.offset, retyped)


def torch_dtype_of(buffer: Buffer) -> Any:
    return buffer.torch_dtype if buffer.dtype is None else buffer.dtype.to_torch()


def is_constant(ref: Ref) -> bool:
    """Whether the Ref shows elements of a constant with the constant's own dtype."""
    return ref.buffer.kind is Kind.CONSTANT and ref.torch_dtype == torch_dtype_of(ref.buffer)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def same_places(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Whether every element has the same place with either strides."""
    return all(e == 1 or s == t for e, s, t in zip(shape, strides, others, strict=True))


def devices_of(val: Any) -> Iterator[str]:
    for v in leaves(val):
        if is_tensor(v):
            yield str(v.device)


def sizes_in(val: Any) -> Iterator[Size]:
    """Yields the symbolic sizes."""
    for v in leaves(val):
        for n in v.shape if is_tensor(v) else (v,):
            if isinstance(n, Size):
                yield n


def unbacked_sizes_in(val: Any) -> Iterator[Size]:
    """Yields the unbacked sizes under their original symbols, even if these turned out to equal others."""
    for v in leaves(val):
        for n in getattr(v, "own_shape", ()) if is_tensor(v) else (v,):
            if isinstance(n, Size) and unbacked_in(n):
                yield n


def is_tensor(val: Any) -> bool:
    return hasattr(val, "storage_offset")


def used_results(node: torch.fx.Node) -> set[int]:
    """Returns the numbers of the results that the graph uses."""
    return {int(u.args[1]) for u in node.users if u.target is operator.getitem}  # type: ignore[arg-type]


def is_only_stored(node: torch.fx.Node) -> bool:
    """Whether the graph only returns the node or writes it back, directly or as a view."""
    return all(
        u.op == "output"
        or str(u.target) == WRITE_BACK
        or ((u.target is operator.getitem or is_view(u.target)) and is_only_stored(u))
        for u in node.users
    )


def base_of(node: torch.fx.Node) -> tuple[torch.fx.Node, int]:
    """Returns the node, and the number of its result, whose buffer `node` is a view of."""
    result = 0
    while node.op == "call_function":
        target: Any = node.target
        if target is operator.getitem:
            result = int(node.args[1])  # type: ignore[arg-type]
        elif not (is_view(target) or str(target) == WRITE_BACK):
            break
        else:
            result = 0
        node = node.args[0]  # type: ignore[assignment]
    return node, result
