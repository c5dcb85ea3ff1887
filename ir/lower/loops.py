"""Lowers one op to kernels by the table: one store per result, with the op's checks and random draws.

In: the lowering so far and the op's arguments.  Out: the Ref of its result, or of each result; the kernels
are appended to the lowering's steps.  Raises `Decline` if loops cannot compute the op.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.library import DRAW
from frameloom.ir.lower.geometry import (
    is_only_stored,
    origin,
    result_of,
    scatter_of,
    store_of,
    used_results,
)
from frameloom.ir.lower.graph_passes.in_place import in_place
from frameloom.ir.lower.layout import channels_last
from frameloom.ir.lower.numbers import Scalar
from frameloom.ir.lower.table import (
    IF_EMPTY,
    TAKES_NUMBERS,
    TAKES_SIZES,
    Call,
    Decline,
    Draw,
    Ref,
    Result,
    Scattered,
)
from frameloom.ir.program import Extern, Kernel, View, is_cuda, leaves, map_leaves
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering
    from frameloom.ir.lower.graph_passes.in_place import InPlace

# Replaces a derivative's result that is None because the operand needs no gradient.
NO_RESULT = Result((0,), (1,), DType.F32, torch.float32)


def loops(
    lowering: Lowering, node: torch.fx.Node, name: str, function: Any, arguments: list[Any]
) -> Any:
    """Returns the Ref of the result of `function`, the lowering of the op `name`, or a list; None for an
    unused result."""
    val: Any = node.meta.get("val")
    several = isinstance(val, (list, tuple))
    metas = list(val) if several else [val]
    for k in lowering.repeats.items.get(node, ()):
        metas[k] = None
    results = tuple(NO_RESULT if v is None else result_of(v) for v in metas)
    devices = {str(v.device) for v in metas if v is not None}
    if len(devices) != 1:
        raise Decline
    (device,) = devices
    if lowering.on_gpu and not is_cuda(device):
        raise Decline  # a CPU tensor in a graph on a GPU: a few numbers, not worth a compilation
    names = tuple(a.name for a in node.target._schema.arguments)  # type: ignore[union-attr]
    given = _operands(lowering, node, name, device, arguments)
    if lowering.layouts.has_internal_layouts:
        metas = [
            v
            if v is None or (node, k) in lowering.visible
            else channels_last.layout(v, leaves(given))
            for k, v in enumerate(metas)
        ]
    call = Call(
        name, names, results, node=node.name, device=device,
        generator_of=lowering.generator_of, source=node.meta.get("source"),
        is_only_stored=partial(is_only_stored, node),
        is_used=lambda k: k in used_results(node),
    )  # fmt: skip
    empty = all(0 in r.shape for r in results) and IF_EMPTY[name] != "ask"
    if empty and IF_EMPTY[name] == "library" and any(0 not in r.shape for r in leaves(given) if isinstance(r, Ref)):  # fmt: skip
        raise Decline
    values: Any = [None] * len(metas)
    if not empty:
        with _sizes_unknown(lowering):
            values = function(call, *given)
    if isinstance(values, Scattered) and (update := in_place(lowering, node, values)) is not None:
        return _scattered_in_place(lowering, node, call, update)
    refs: list[Ref | None] = []
    steps = []
    for k, (v, value) in enumerate(
        zip(metas, values if several or empty else [values], strict=True)
    ):
        if v is None:
            refs.append(None)
            continue
        own_name = f"{node.name}_{k}" if several else node.name
        buffer = lowering.buffer(own_name, v, lowering.kind_of(node, k))
        ref = lowering.ref(buffer, v)
        refs.append(ref)
        if value is not None and 0 not in buffer.shape:
            steps += _stored(lowering, ref, value, name, node)
    for temporary, value in reversed(call.temporaries):
        lowering.base_offset[temporary.buffer] = 0
        steps = [*_stored(lowering, temporary, value, name, node), *steps]
    lowering.steps += [*(_draw(lowering, d, node) for d in call.draws), *steps]
    _checks(lowering, call, node)
    return refs if several else refs[0]


def _operands(
    lowering: Lowering, node: torch.fx.Node, name: str, device: str, arguments: list[Any]
) -> list[Any]:
    """Returns the arguments of the op's lowering; raises Decline if loops cannot use one."""
    in_loops = lowering.numbers.in_loops
    given: list[Any] = map_leaves(
        lambda a: in_loops(a) if isinstance(a, Scalar) else a, lowering.argument(arguments)
    )
    if name not in TAKES_NUMBERS and any(isinstance(a, Scalar) for a in leaves(given)):
        raise Decline
    if name not in TAKES_NUMBERS | TAKES_SIZES and any(
        isinstance(a, Size) and "number" in str(at.type)
        for at, a in zip(node.target._schema.arguments, given, strict=True)  # type: ignore[union-attr]
    ):
        raise Decline  # a symbolic size in place of a number, which the lowering may have to know
    if any(ref.buffer.device != device for ref in leaves(given) if isinstance(ref, Ref)):
        raise Decline  # a number in CPU memory: the library call passes it to the GPU
    return given


def _scattered_in_place(
    lowering: Lowering, node: torch.fx.Node, call: Call, update: InPlace
) -> Ref | None:
    """Adds scatters into an input: at this place of the program, or later, at the write-back."""
    _checks(lowering, call, node)
    kernels = [lowering.kernel(call.target, s, node) for s in update.stores]
    if not update.immediate:
        lowering.writes.delayed[node] = kernels
        return None
    lowering.steps += kernels
    lowering.writes.wrote_early = True
    lowering.writes.written.add(update.into.buffer)
    return update.into


@contextmanager
def _sizes_unknown(lowering: Lowering) -> Iterator[None]:
    """Makes a lowering decline where it would specialize a symbolic size."""
    if lowering.shape_env is None:
        yield
        return
    lowering.shape_env.refusing = Decline
    try:
        yield
    finally:
        lowering.shape_env.refusing = None


def _checks(lowering: Lowering, call: Call, node: torch.fx.Node) -> None:
    for k, (bad, exception, message) in enumerate(call.checks):
        lowering.check(f"{node.name}_check{k}", bad, exception, message, node)


def _stored(
    lowering: Lowering, into: Ref, value: Any, name: str, node: torch.fx.Node
) -> list[Kernel]:
    """Returns the kernels that compute the result of a lowering into `into`."""
    if not isinstance(value, Scattered):
        return [lowering.kernel(name, store_of(into, value), node)]
    stores = [store_of(into, value.initial), *(scatter_of(into, u) for u in value.updates)]
    return [lowering.kernel(name, s, node) for s in stores]


def _draw(lowering: Lowering, draw: Draw, node: torch.fx.Node) -> Extern:
    view = None
    if draw.aligned is not None:
        aligned_inputs = [b for b in lowering.inputs if b.name == draw.aligned]
        if not aligned_inputs:
            raise Decline  # the alignment of its memory is not known
        view = View(aligned_inputs[0], aligned_inputs[0].shape, aligned_inputs[0].strides)
    args = (draw.device, draw.increment, view)
    return Extern(DRAW, args, (), draw.numbers, origin(node))
