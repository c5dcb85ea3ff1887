"""Calls whose results nobody uses: they are left out of the graph, unless the op would refuse its arguments, which shape functions do not always say.

In: a node that nothing needs.  Out: whether its kernel raises, tried with small tensors of ones; then the program has to make the call itself.
They lie on the CPU for a GPU's calls, too, whose assertions would end all work there: what one device refuses, the other mostly does.
Calls on tensors of several devices, most of which are mistakes, are made by the program.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from frameloom.capture.aten_op import draws, facts_of
from frameloom.capture.fake import Fake
from frameloom.ir.size import Size, hint_of

MOST = 1 << 16  # elements of all arguments
SITES = -(1 << 20)  # below any instruction's: others are avoided at the instruction itself


def site_of(code: Any, index: int) -> tuple[Any, int]:
    """The place by which a session knows that the call there is refused."""
    return code, SITES - index


def is_refused(node: torch.fx.Node) -> bool:
    if node.meta.get("site") is None or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target.namespace != "aten" or facts_of(node.target).behaviour != "pure" or draws(node):
        return False
    if _on_several_devices(node):
        return True
    room = [MOST]
    try:
        given = torch.fx.node.map_aggregate((node.args, node.kwargs), lambda a: _plain(a, room))
    except _TooLarge:
        return False
    args, kwargs = given
    try:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            node.target(*args, **kwargs)
    except NotImplementedError as error:
        return "not implemented for '" in str(error)  # a dtype, rather than an op without a kernel
    except (RuntimeError, IndexError, ValueError, TypeError):
        return True
    return False


def _on_several_devices(node: torch.fx.Node) -> bool:
    """But for single numbers, which every device takes from the CPU."""
    fakes = [v for a in node.all_input_nodes if isinstance(v := a.meta.get("val"), Fake)]
    return len({f.device for f in fakes if f.device.type != "cpu" or f.dim()}) > 1


class _TooLarge(Exception):
    """Trying it would take long, or is not possible here."""


def _plain(a: Any, room: list[int]) -> Any:
    if isinstance(a, Size):
        return int(hint_of(a))
    if isinstance(a, torch.device):
        return torch.device("cpu")
    if not isinstance(a, torch.fx.Node):
        return a
    like = a.meta.get("val")
    if not isinstance(like, Fake) or like.device.type == "meta" or like.layout != torch.strided:
        raise _TooLarge
    shape, strides = ([int(hint_of(n)) for n in sizes] for sizes in (like.shape, like.stride()))
    extent = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    room[0] -= max(extent, 0)
    if room[0] < 0:
        raise _TooLarge
    with torch._C._DisableTorchDispatch():
        one = 1 + 1j if like.dtype.is_complex else 1
        return torch.empty_strided(shape, strides, dtype=like.dtype).fill_(one)
