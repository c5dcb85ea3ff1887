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
from frameloom.capture.shapes.probe import fit_by_probing
from frameloom.capture.shapes.registry import is_sized, with_specialized_sizes
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import properties_of, tensors_of
from frameloom.capture.tensors.sized import (
    SizedMeta,
    has_contiguous_strides,
    plain_if_static,
    strides_of,
)
from frameloom.ir.symbolic.compare import same
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
    if len({f.device for f in fakes}) != 1:
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
    dims: list[tuple[int, int]] = []  # those that have that size: tensor and dimension
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        if a.dim() != b.dim() or not has_contiguous_strides(a) or not has_contiguous_strides(b):
            return None
        pairs = list(zip(a.shape, b.shape, strict=True))
        differing = [d for d, (n, m) in enumerate(pairs) if not same(n, m)]
        if any(isinstance(n, Size) or (n, m) != NUMBERS for n, m in (pairs[d] for d in differing)):
            return None
        dims += [(k, d) for d in differing]
    if len(dims) != 1 or dims[0][0]:
        return None
    ((_, dim),) = dims
    size, source = new_size(recorder, None, dim)
    shapes: list[list[Int]] = [list(t.shape) for t in first]
    shapes[0][dim] = size
    metas = [SizedMeta(s, strides_of(s), t.dtype) for s, t in zip(shapes, first, strict=True)]
    return (metas[0] if len(metas) == 1 else tuple(metas)), source


def _answer(func: Any, args: Any, kwargs: Any, number: int) -> Sequence[torch.Tensor] | None:
    """Returns the results of the fake function if its size is `number`; None if it does not ask for exactly
    one size."""
    args, kwargs = pytree.tree_map_only(Fake, lambda f: plain_if_static(f.meta), (args, kwargs))
    asked: set[int] = set()

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        function, context = _fake_function(func), Context(number)
        assert function is not None
        with torch._C._DisableTorchDispatch(), fake_impl.set_ctx_getter(lambda: context):
            result = function(*args, **kwargs)
        asked.add(context.asked)
        return result

    if is_sized(pytree.tree_leaves((args, kwargs))):
        result = fit_by_probing(func, args, kwargs, answer)
        if asked != {1}:
            return None
        if result is not None:
            return pytree.tree_leaves(result)
        args, kwargs = with_specialized_sizes((args, kwargs))
    result = answer(func, args, kwargs)
    return pytree.tree_leaves(result) if asked == {1} else None
