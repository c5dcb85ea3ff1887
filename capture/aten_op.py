"""What an ATen op does with its arguments, as far as recording needs to know: read off its schema, or listed here.

Questions about one op and its arguments; the recording itself is in `record.py`, sizes are in `shapes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from frameloom.capture.fake import Fake
from frameloom.capture.shapes import infer
from frameloom.errors import Break

aten = torch.ops.aten


def same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    return all(n <= 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def is_data_dependent(func: Any, args: Any) -> bool:
    tags = func.tags
    if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
        masks = (torch.bool, torch.uint8)
        return func is aten.index.Tensor and any(
            t is not None and t.dtype in masks for t in args[1]
        )
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags


def tensors_of(func: Any, args: Any, kwargs: Any) -> list[Fake]:
    found: list[Fake] = []
    for a in (*args, *kwargs.values()):
        for t in a if isinstance(a, list | tuple) else (a,):
            if isinstance(t, Fake):
                if t.memory is None:
                    raise Break("unsupported_call", f"{func} on a tensor of another recording")
                found.append(t)
            elif isinstance(t, torch.Tensor):
                raise Break("unsupported_call", f"{func} on a tensor that was not traced")
    return found


def plain_arguments(schema: Any, named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All arguments but the `out`s, defaults filled in: the functional form may not have the same defaults."""
    args, kwargs = [], {}
    for a in schema.arguments:
        if a.is_out:
            continue
        value = named.get(a.name, a.default_value)
        if a.kwarg_only:
            kwargs[a.name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


_BEHAVIOUR: dict[Any, str] = {aten._unsafe_view.default: "view"}


def behaviour_of(func: Any) -> str:
    """ "write" (in place or out=), "view" or "pure", from the op's schema."""
    found = _BEHAVIOUR.get(func)
    if found is None:
        infos = [a.alias_info for a in func._schema.arguments if a.alias_info is not None]
        if any(i.is_write for i in infos):
            found = "write"
        else:
            found = "view" if infos else "pure"
        _BEHAVIOUR[func] = found
    return found


def infer_node(func: Any, args: Any, kwargs: Any) -> Any:
    def meta(a: Any) -> Any:
        return a.meta["val"].meta if isinstance(a, torch.fx.Node) else a

    meta_args = torch.fx.node.map_aggregate(args, meta)
    meta_kwargs = dict(torch.fx.node.map_aggregate(kwargs, meta))
    if any(a.name == "device" for a in func._schema.arguments):
        meta_kwargs["device"] = torch.device("meta")
    meta_kwargs.pop("pin_memory", None)
    try:
        return infer(func, meta_args, meta_kwargs)
    except NotImplementedError as error:
        raise Break("unsupported_op", f"{func}: sizes of its result are not known") from error


def device_of(func: Any, args: Any, kwargs: Any) -> torch.device:
    """The device of the results: as asked for, else that of the first tensor that is not a 0-dim CPU scalar."""
    if (device := kwargs.get("device")) is not None:
        return torch.device(device)
    best: torch.device | None = None
    for a in (*args, *kwargs.values()):
        for n in a if isinstance(a, list | tuple) else (a,):
            if isinstance(n, torch.fx.Node):
                value = n.meta["val"]
                if best is None or (value.dim() > 0 and value.device.type != "cpu"):
                    best = value.device
    return best or torch.device("cpu")


def _split_sizes(x: Fake, sizes: Sequence[int], dim: int = 0) -> list[tuple[Any, tuple[Any, ...]]]:
    pieces, start = [], 0
    for n in sizes:
        pieces.append((aten.slice.Tensor, (dim, start, start + n)))
        start += n
    return pieces


def _split(x: Fake, size: int, dim: int = 0) -> list[tuple[Any, tuple[Any, ...]]]:
    length = x.shape[dim]
    if size == 0:
        return [(aten.slice.Tensor, (dim, 0, length))]
    return [
        (aten.slice.Tensor, (dim, s, min(s + size, length))) for s in range(0, max(length, 1), size)
    ]


def _unbind(x: Fake, dim: int = 0) -> list[tuple[Any, tuple[Any, ...]]]:
    return [(aten.select.int, (dim, i)) for i in range(x.shape[dim])]


SPLITS: dict[Any, Callable[..., Any]] = {
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_sizes,
    aten.unbind.int: _unbind,
}
