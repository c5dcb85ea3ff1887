"""What recording needs to know about an ATen op and its arguments, from its schema or from lists in this
file.

The recording itself is in `recording/recorder.py`; sizes are in `shapes/registry.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from frameloom.capture.tensors.fake import Fake
from frameloom.errors import Break
from frameloom.ir import fallible
from frameloom.ir.library import is_collective
from frameloom.ir.symbolic.compare import equal, fits
from frameloom.ir.symbolic.expr import Int, hint_of, is_size

aten = torch.ops.aten
META = torch.device("meta")


def same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    return all(
        s is t or s == t or n <= 1 for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)
    )


@dataclass(frozen=True, slots=True)
class OpProperties:
    """The properties of an op, by its schema and tags."""

    behaviour: str  # "write" (in place or out=), "view" or "pure"
    data_dependent: bool  # Python reads the value or size of its result
    resizes: bool
    is_composite: bool  # of other ops, which autograd follows
    has_derivative: bool  # if false, autograd follows the ops that its kernel calls
    takes_device: bool
    returns_list: bool
    name: str  # for its nodes
    scalars: tuple[tuple[int, str], ...]  # arguments that may be numbers of any type
    sparse: tuple[tuple[int, str], ...]  # arguments that request a sparse gradient


KEYS = torch._C.DispatchKey
COMPOSITE = KEYS.CompositeImplicitAutograd
DERIVATIVES = (KEYS.Autograd, KEYS.AutogradCPU, KEYS.AutogradCUDA)
_PROPERTIES: dict[Any, OpProperties] = {}
SCALARS = ("number", "Optional[number]", "Tensor", "Optional[Tensor]")
MASKED = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)


def properties_of(func: Any) -> OpProperties:
    properties = _PROPERTIES.get(func)
    if properties is None:
        properties = _PROPERTIES[func] = _read_properties(func)
    return properties


def _read_properties(func: Any) -> OpProperties:
    schema, tags = func._schema, func.tags
    infos = [a.alias_info for a in schema.arguments if a.alias_info is not None]
    behaviour = "view" if infos or func is aten._unsafe_view.default else "pure"
    if any(i.is_write for i in infos):
        behaviour = "write"
    dynamic = torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
    return OpProperties(
        behaviour=behaviour,
        data_dependent=dynamic and func not in MASKED,
        resizes=torch.Tag.inplace_view in tags,
        is_composite=func.has_kernel_for_dispatch_key(COMPOSITE),
        has_derivative=_has_derivative(func),
        takes_device=any(a.name == "device" for a in schema.arguments),
        returns_list=len(schema.returns) == 1 and str(schema.returns[0].type).endswith("[]"),
        name=f"{schema.name.partition('::')[2].strip('_')}_{func._overloadname}".lower(),
        scalars=tuple(
            (k, a.name) for k, a in enumerate(schema.arguments) if str(a.type) in SCALARS
        ),
        sparse=tuple(
            (k, a.name)
            for k, a in enumerate(schema.arguments)
            if a.name in ("sparse", "sparse_grad")
        ),
    )


def _has_derivative(func: Any) -> bool:
    """Whether autograd has a kernel for `func`. PyTorch's own ops have a derivative, or none is needed. Other
    libraries may leave out the dispatch key, or let it fall through."""
    if func.namespace in ("aten", "prims") or is_collective(str(func)):
        return True
    falls = torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough
    name = func._schema.name + ("." + func._schema.overload_name if func._schema.overload_name else "")  # fmt: skip
    return any(
        key in func.py_kernels
        or (func.has_kernel_for_dispatch_key(key) and not falls(name, key.name))
        for key in DERIVATIVES
    )


def check_derivative(func: Any, given: Any, made: Any) -> None:
    """Raises if autograd would follow the ops that the kernel calls, because these are not recorded."""
    if properties_of(func).behaviour == "pure":
        made = [f for f in fakes_in((made,)) if f.is_floating_point() or f.is_complex()]
        if not made:
            return
    if any(f.requires_grad for f in fakes_in(given)):
        raise Break("unsupported_op", f"{func}, which has no derivative of its own, with gradients")


def is_view(node: torch.fx.Node) -> bool:
    """Whether the node is a view; views are made again from their base."""
    target: Any = node.target
    overload = node.op == "call_function" and isinstance(target, torch._ops.OpOverload)
    return overload and properties_of(target).behaviour == "view"


def may_raise(node: torch.fx.Node, at_once: bool = False) -> bool:
    """Whether the data of the node's tensors can make it raise. `at_once`: whether it raises at the call, so
    that the program could catch the exception."""
    if not isinstance(node.target, torch._ops.OpOverload) or not _may_ever_raise(node.target):
        return False
    val = node.meta.get("val")
    of_floats = getattr(val, "dtype", torch.int64).is_floating_point
    on_gpu = at_once and any(f.device.type == "cuda" for f in _fakes_of(node))
    return _kernel_may_raise(node.target, of_floats, on_gpu)


@functools.cache
def _may_ever_raise(target: Any) -> bool:
    """A fast first check, because few ops can raise."""
    return any(fallible.may_raise(str(target), False, on_gpu) for on_gpu in (False, True))


@functools.cache
def _kernel_may_raise(target: Any, of_floats: bool, on_gpu: bool) -> bool:
    return fallible.may_raise(str(target), of_floats, on_gpu)


@functools.cache
def never_raises(target: Any) -> bool:
    """For an op that a plan runs as a library call: whether a plan may run it after its writes."""
    return fallible.never_raises(str(target))


def stays_unused(node: torch.fx.Node) -> bool:
    """Whether the node must stay even if its results are unused, because it does more than return them."""
    if node.target is aten.copy_.default or may_raise(node) or is_collective(str(node.target)):
        return True
    return may_draw(node.target)


def _fakes_of(node: torch.fx.Node) -> list[Fake]:
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    return [v for v in values if isinstance(v, Fake)]


@functools.cache
def may_draw(target: Any) -> bool:
    """Whether some calls of an op draw random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def draws(node: torch.fx.Node) -> bool:
    """Whether the node draws random numbers. Attention is tagged as random even if it has no dropout."""
    target: Any = node.target
    if not may_draw(target):
        return False
    for position, a in enumerate(target._schema.arguments):
        if a.name == "dropout_p":
            given = node.args[position] if position < len(node.args) else a.default_value
            return bool(node.kwargs.get(a.name, given))
    return True


def taking_generator(func: Any) -> Any:
    """Returns the overload of a random op that takes a generator; None if there is none."""
    names = [a.name for a in func._schema.arguments]
    others = [getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads()]
    for other in (func, *others):
        own = [a.name for a in other._schema.arguments]
        if "generator" in own and [n for n in own if n != "generator"] == [
            n for n in names if n != "generator"
        ]:
            return other
    return None


def selects_by_mask(func: Any, args: Any) -> bool:
    """Whether a mask is an index: then the result has as many elements as the mask has ones."""
    masks = (torch.bool, torch.uint8)
    return func is aten.index.Tensor and any(t is not None and t.dtype in masks for t in args[1])


def is_out(func: Any) -> bool:
    return any(a.is_out for a in func._schema.arguments)


def is_plain(t: torch.Tensor) -> bool:
    """Whether `t` has the strides of a fresh tensor, also in dimensions of size 0 or 1."""
    return t.stride() == torch.empty(t.shape, device=META).stride()


def fakes_in(arguments: Any) -> Iterator[Fake]:
    """Yields the Fakes in a structure of tuples, lists and dicts."""
    for a in arguments.values() if isinstance(arguments, dict) else arguments:
        if isinstance(a, Fake):
            yield a
        elif isinstance(a, list | tuple | dict):
            yield from fakes_in(a)


def tensors_of(func: Any, args: Any, kwargs: Any) -> list[Fake]:
    tensors: list[Fake] = []
    for a in (*args, *kwargs.values()):
        for t in a if isinstance(a, list | tuple) else (a,):
            if isinstance(t, Fake):
                if t.memory is None:
                    raise Break("unsupported_call", f"{func} on a tensor of another recording")
                tensors.append(t)
            elif isinstance(t, torch.Tensor):
                raise Break("unsupported_call", f"{func} on a tensor that was not traced")
    return tensors


def plain_arguments(schema: Any, named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns all arguments but the `out`s, with defaults filled in: the functional form may have other
    defaults."""
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


def one_needs_another(args: Any, kwargs: Any) -> bool:
    """Whether a tensor that a list op writes shares memory with a tensor at another position of the lists."""
    targets = args[0]
    if len(targets) < 2 or not all(isinstance(t, Fake) for t in targets):
        return False
    owner = {id(t.memory): k for k, t in enumerate(targets)}
    if len(owner) < len(targets):
        return True
    for a in (*args[1:], *kwargs.values()):
        several = isinstance(a, list | tuple)
        for k, t in enumerate(a if several else (a,)):
            if not isinstance(t, Fake):
                continue
            written_at = owner.get(id(t.memory))
            if written_at is not None and not (several and written_at == k):
                return True
    return False


def device_of(func: Any, args: Any, kwargs: Any) -> torch.device:
    """Returns the device of the results: the requested one, else that of the first tensor that is not on the
    CPU. Besides a tensor on another device, only numbers may be on the CPU."""
    if (device := kwargs.get("device")) is not None:
        device = torch.device(device)
        return torch.device("cpu") if device.type == "cpu" else device  # there is one CPU
    for a in (*args, *kwargs.values()):
        for n in a if isinstance(a, list | tuple) else (a,):
            val = n.meta["val"] if isinstance(n, torch.fx.Node) else None
            if isinstance(val, Fake) and val.device.type != "cpu":
                return val.device
    return torch.device("cpu")


def names_no_index(device: Any) -> bool:
    """Whether `device` means the current CUDA device."""
    if isinstance(device, torch.device):
        return device.type == "cuda" and device.index is None
    return isinstance(device, str) and device == "cuda"


def _split_sizes(x: Fake, sizes: Sequence[int], dim: int = 0) -> list[tuple[Any, tuple[Any, ...]]]:
    parts, start = [], 0
    if not all(fits(0, n) for n in sizes) or not equal(sum(sizes), x.shape[dim]):
        raise Break("op_error", "the sizes of the parts of a split do not fit")
    for n in sizes:
        parts.append((aten.slice.Tensor, (dim, start, start + n)))
        start += n
    return parts


def _split(x: Fake, size: int, dim: int = 0) -> list[tuple[Any, tuple[Any, ...]]]:
    length = x.shape[dim]
    if is_size(size) or is_size(length):
        return _split_sized(length, size, dim)
    if size < 0 or (size == 0 and length):
        raise Break("op_error", f"split(...) into parts of {size}")
    if size == 0:
        return [(aten.slice.Tensor, (dim, 0, length))]
    return [
        (aten.slice.Tensor, (dim, s, min(s + size, length))) for s in range(0, max(length, 1), size)
    ]


def _split_sized(length: Int, size: Int, dim: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """Adds a guard for the number of parts."""
    count = -(-hint_of(length) // hint_of(size)) if hint_of(size) else 0
    if count < 1 or not ((count - 1) * size < length and length <= count * size):
        raise Break("op_error", "split(...) into parts without elements")
    starts = [k * size for k in range(count)]
    return [(aten.slice.Tensor, (dim, s, e)) for s, e in zip(starts, [*starts[1:], length], strict=True)]  # fmt: skip


def _unbind(x: Fake, dim: int = 0) -> list[tuple[Any, tuple[Any, ...]]]:
    return [(aten.select.int, (dim, i)) for i in range(x.shape[dim])]


SPLITS: dict[Any, Callable[..., Any]] = {
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_sizes,
    aten.unbind.int: _unbind,
}
