"""Ops of the program whose fake function asks for an unbacked size:
`torch.library.get_ctx().new_dynamic_size()`.

In: the call of such an op, as the recorder receives it. Out: its result, with an unbacked symbol in place of
    that size. The fake function is called twice, with another number each time. If its answers differ by more
    than that number, the sizes are unknown and the graph breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch._library import fake_impl, simple_registry

from frameloom.capture.recording.unbacked_sizes import made, new_size
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import properties_of, tensors_of
from frameloom.capture.tensors.sized import SizedMeta, strides_of
from frameloom.ir.symbolic.expr import Int, Size

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

PYTORCHS = ("aten", "prims", "frameloom", "quantized", "mkldnn", "onednn", "_c10d_functional")
NUMBERS = (10007, 20011)  # sizes that no tensor here has


class Context:
    """The object that `torch.library.get_ctx()` returns."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, 0

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        self.asked += 1
        return self.number

    create_unbacked_symint = new_dynamic_size


def special_of(func: Any) -> Callable[..., Any] | None:
    """Returns the function that records the op, if it needs one of its own."""
    if func.namespace in PYTORCHS or properties_of(func).behaviour != "pure":
        return None
    return _record if _fake_function(func) is not None else None


def _fake_function(func: Any) -> Callable[..., Any] | None:
    kernel: Any = simple_registry.singleton.find(func._schema.name).fake_impl.kernel
    return kernel


def _record(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    fakes = tensors_of(func, args, kwargs)
    shapes = [n for f in fakes for n in (*f.shape, *f.stride())]
    given = pytree.tree_leaves((args, kwargs))
    is_possible = len({f.device for f in fakes}) == 1
    if not is_possible or any(isinstance(n, Size) for n in (*shapes, *given)):
        return recorder.pure(func, args, kwargs)
    metas = _metas(recorder, func, args, kwargs)
    if metas is None:
        return recorder.pure(func, args, kwargs)
    return made(recorder, func, args, metas[0], kwargs, metas[1])


def _metas(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Returns the layouts of the results, and the source of the unbacked symbol; None if the op asks for no
    size, or the size occurs in several tensors."""
    first, second = (_answer(func, args, kwargs, number) for number in NUMBERS)
    if first is None or second is None or len(first) != len(second):
        return None
    dims = [
        [d for d, pair in enumerate(zip(a.shape, b.shape, strict=True)) if pair == NUMBERS]
        for a, b in zip(first, second, strict=True)
        if a.dim() == b.dim()
    ]
    if len(dims) != len(first) or len(dims[0]) != 1 or any(dims[1:]):
        return None
    if not all(t.is_contiguous() for t in (*first, *second)):
        return None
    (dim,) = dims[0]
    size, source = new_size(recorder, None, dim)
    shapes: list[list[Int]] = [list(t.shape) for t in first]
    if any(a.shape != b.shape for a, b in zip(first[1:], second[1:], strict=True)):
        return None
    shapes[0][dim] = size
    metas = [SizedMeta(s, strides_of(s), t.dtype) for s, t in zip(shapes, first, strict=True)]
    return (metas[0] if len(metas) == 1 else tuple(metas)), source


def _answer(func: Any, args: Any, kwargs: Any, number: int) -> Sequence[torch.Tensor] | None:
    """Returns the results of the fake function if its size is `number`; None if it does not ask for exactly
    one size."""
    function, context = _fake_function(func), Context(number)
    assert function is not None
    args, kwargs = pytree.tree_map_only(Fake, lambda f: f.meta, (args, kwargs))
    with torch._C._DisableTorchDispatch(), fake_impl.set_ctx_getter(lambda: context):
        result = function(*args, **kwargs)
    return pytree.tree_leaves(result) if context.asked == 1 else None
