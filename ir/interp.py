"""Reference interpreter: runs a Program on the CPU with PyTorch's own eager ops, one whole tensor per node.

Slow and simple on purpose: it defines what node.py says in words, and tests compare every rewrite and backend
with it.  `run(program, inputs)` writes to INPUT buffers in place, as the compiled program does.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from frameloom.ir import philox
from frameloom.ir.dtype import DType
from frameloom.ir.library import DRAW, LAZY, READ, overload
from frameloom.ir.node import Axis, Node
from frameloom.ir.numbers import MEANING
from frameloom.ir.ops import Op
from frameloom.ir.passes.batch import expand
from frameloom.ir.program import (
    Buffer,
    Check,
    Extern,
    Kernel,
    Kind,
    NumberStep,
    Program,
    Step,
    Store,
    View,
    map_leaves,
)
from frameloom.ir.reductions import combining_op, identity
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.static_steps import KnownSizes

Tensor = torch.Tensor


@dataclass(frozen=True)
class Value:
    """A tensor with one dimension per axis that the node depends on."""

    axes: tuple[Axis, ...]
    tensor: Tensor


@dataclass(frozen=True)
class Unwritten:
    """What memory has before the first write; these values make reads of such memory visible in results."""

    number: float
    integer: int

    def fill(self, fresh: Tensor) -> Tensor:
        if fresh.dtype.is_complex:
            return fresh.fill_(complex(self.number, self.number))
        if fresh.dtype.is_floating_point:
            return fresh.fill_(self.number)
        return fresh.fill_(self.integer)  # bools: whether it is not 0


UNWRITTEN = Unwritten(math.nan, 93)
# What PyTorch calls otherwise than the IR.
NAMES: dict[Op, Callable[..., Tensor]] = {
    Op.SIGN: torch.sgn, Op.RECIP: torch.reciprocal, Op.NOT: torch.bitwise_not,
    Op.FLOORDIV: lambda a, b: torch.div(a, b, rounding_mode="floor"),
    Op.TRUNCDIV: lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    Op.MOD: torch.remainder, Op.MIN: torch.minimum, Op.MAX: torch.maximum, Op.AND: torch.bitwise_and,
    Op.OR: torch.bitwise_or, Op.XOR: torch.bitwise_xor, Op.SHL: torch.bitwise_left_shift,
    Op.SHR: torch.bitwise_right_shift,
}  # fmt: skip
# Reductions over a dimension, by the op that combines two values.
WHOLE: dict[Op, Callable[[Tensor, int], Tensor]] = {
    Op.ADD: lambda t, dim: torch.sum(t, dim, dtype=t.dtype), Op.MUL: lambda t, dim: torch.prod(t, dim, dtype=t.dtype),
    Op.MAX: torch.amax, Op.MIN: torch.amin, Op.OR: torch.any, Op.AND: torch.all, Op.LOGADDEXP: torch.logsumexp,
}  # fmt: skip


def function(op: Op) -> Callable[..., Tensor]:
    """Returns PyTorch's function for a unary or binary op."""
    return NAMES.get(op) or getattr(torch, op.value)


def run(
    program: Program,
    inputs: Sequence[Any],
    take: Callable[[int], tuple[int, int]] | None = None,
    after: Callable[[Step, dict[Buffer, Tensor]], None] | None = None,
    unwritten: Unwritten = UNWRITTEN,
    on_devices: bool = False,
) -> tuple[Any, ...]:
    """Returns the outputs of `program` on `inputs` (tensors, and objects that are only passed through).

    `take(increment)` returns seed and offset of the random number generator and advances it.  `after` is
    called after each step; `unwritten` fills fresh memory.  `on_devices`: whether buffers are on their own
    devices, not on the CPU."""
    program = expand(program)
    memory: dict[Buffer, Tensor] = dict(program.constants)
    for buffer, given in zip(program.inputs, inputs, strict=True):
        if isinstance(given, torch.Tensor):
            memory[buffer] = given
        elif buffer.kind is Kind.NUMBER:
            memory[buffer] = torch.tensor(given, dtype=buffer.dtype.to_torch())  # type: ignore[union-attr]
    for n in program.numbers:
        memory[n.result] = _number(n, memory)
    sizes = KnownSizes()
    sizes.given(program, inputs, memory)
    for general in program.steps:
        step = sizes.step(general)
        for buffer in step.buffers:
            if buffer not in memory and buffer.kind in (Kind.OUTPUT, Kind.TEMP):
                memory[buffer] = _fresh(sizes.buffer(buffer), unwritten, on_devices)
        for kernel in step.kernels:
            run_kernel(kernel, memory)
        if isinstance(step, Check):
            if bool(_flat(step.buffer, memory)[0]):
                raise getattr(builtins, step.exception)(step.message)
        elif not isinstance(step, Extern):
            pass
        elif step.target == DRAW:
            assert take is not None, "the program draws random numbers"
            for result, number in zip(step.results, take(step.args[1]), strict=True):
                assert result is not None
                memory[result] = torch.tensor(DType.I64.wrapped(number))
        elif step.target == READ:
            sizes.read(step.results[0], view(step.args[0], memory))
        else:
            run_extern(step, memory, sizes)
        if after is not None:
            after(step, memory)
    outputs = []
    for general_output in program.outputs:
        out = sizes.value(general_output)
        if isinstance(out, View) and out.buffer not in memory:  # a tensor without elements
            memory[out.buffer] = _fresh(out.buffer, unwritten, on_devices)
        outputs.append(_output(out, inputs, memory))
    return tuple(outputs)


def _number(n: NumberStep, memory: dict[Buffer, Tensor]) -> Tensor:
    if n.op == "read":
        tensor, at = n.operands
        return _flat(tensor, memory)[at].to(n.result.dtype.to_torch(), copy=True)  # type: ignore[arg-type, index, union-attr]
    if n.op in ("dim", "stride"):
        tensor, dim = n.operands
        assert isinstance(tensor, Buffer) and isinstance(dim, int)
        whole = memory[tensor]
        return torch.tensor(whole.shape[dim] if n.op == "dim" else whole.stride(dim))
    given = [memory[x].item() if isinstance(x, Buffer) else x for x in n.operands]
    return torch.tensor(MEANING[n.op](*given), dtype=n.result.dtype.to_torch())  # type: ignore[union-attr]


def _output(
    out: View | int | tuple[Any], inputs: Sequence[Any], memory: dict[Buffer, Tensor]
) -> Any:
    if isinstance(out, int):
        return inputs[out]
    if isinstance(out, tuple):
        return out[0]
    tensor = view(out, memory)
    for bit in out.bits:
        tensor = LAZY[bit](tensor)
    return tensor


def view(v: View, memory: dict[Buffer, Tensor]) -> Tensor:
    """Returns the tensor that `v` describes; the buffer's own tensor if `v` is the whole of it and it is no
    input."""
    whole = _of(v.buffer, memory)
    if v.torch_dtype is not None and v.torch_dtype != whole.dtype:
        offset = whole.storage_offset() * whole.element_size()
        size = torch.empty((), dtype=v.torch_dtype).element_size()
        assert offset % size == 0
        retyped = torch.empty((0,), dtype=v.torch_dtype, device=whole.device)
        retyped.set_(whole.untyped_storage(), offset // size + v.offset, v.shape, v.strides)
        return retyped
    same = v.offset == 0 and tuple(whole.shape) == v.shape and whole.stride() == v.strides
    if same and v.buffer.kind is not Kind.INPUT:
        return whole
    return whole.as_strided(v.shape, v.strides, whole.storage_offset() + v.offset)


def _of(buffer: Buffer, memory: dict[Buffer, Tensor]) -> Tensor:
    if buffer not in memory:
        assert buffer.kind in (Kind.OUTPUT, Kind.TEMP), f"{buffer} is used before it is written"
        memory[buffer] = _fresh(buffer)
    return memory[buffer]


def _fresh(buffer: Buffer, unwritten: Unwritten = UNWRITTEN, on_devices: bool = False) -> Tensor:
    dtype = buffer.torch_dtype if buffer.dtype is None else buffer.dtype.to_torch()
    device = buffer.device if on_devices else "cpu"
    fresh = torch.empty_strided(buffer.shape, buffer.strides, dtype=dtype, device=device)
    return unwritten.fill(fresh)


def _flat(buffer: Buffer, memory: dict[Buffer, Tensor]) -> Tensor:
    whole = _of(buffer, memory)
    size = whole.untyped_storage().nbytes() // whole.element_size() - whole.storage_offset()
    return whole.as_strided((size,), (1,), whole.storage_offset())


# --- kernels


def run_kernel(kernel: Kernel, memory: dict[Buffer, Tensor]) -> None:
    """Runs a kernel; computes all values before it stores any."""
    device = _of(kernel.stores[0].buffer, memory).device
    is_default = device == torch.get_default_device()
    with contextlib.nullcontext() if is_default else device:
        _run_kernel(kernel, memory)


def _run_kernel(kernel: Kernel, memory: dict[Buffer, Tensor]) -> None:
    done: dict[Node, Value] = {}
    for n in topological([root for s in kernel.stores for root in (s.value, s.offset)]):
        done[n] = evaluate(n, [done[s] for s in n.srcs], memory)
    pending = []
    for store in kernel.stores:
        if 0 in [a.extent for a in store.axes]:
            continue
        offset = _spread(done[store.offset], store.axes).reshape(-1)
        value = _spread(done[store.value], store.axes).reshape(-1).clone()
        assert store.value.dtype is store.buffer.dtype, (
            f"{kernel.name}: {store.buffer} has another dtype"
        )
        if store.scatter is not None:
            _scatter(store, offset, value, _flat(store.buffer, memory))
            continue
        assert int(torch.bincount(offset).max()) == 1, (
            f"{kernel.name}: positions of {store.buffer} overlap"
        )
        pending.append((_flat(store.buffer, memory), offset, value))
    for target, offset, value in pending:
        _check_range(offset, target, kernel.name)
        target[offset] = value


def _scatter(store: Store, offset: Tensor, value: Tensor, target: Tensor) -> None:
    """Stores one position after the other if they hit the same element."""
    assert store.scatter is not None
    kind, dtype = store.scatter.kind, store.value.dtype
    wide = torch.float32 if dtype.is_half else dtype.to_torch()
    replace: Callable[[Tensor, Tensor], Tensor] = lambda before, v: v  # noqa: E731
    combine = replace if kind == "set" else function(combining_op(kind, dtype))
    offset, order = torch.sort(offset, stable=True)
    order, offset = order[offset >= 0], offset[offset >= 0]
    if not offset.numel():
        return
    _check_range(offset, target, str(store.buffer))
    place = torch.arange(offset.numel(), device=offset.device)
    turn = place - torch.searchsorted(offset, offset)
    for k in range(int(turn.max()) + 1):
        at, v = offset[turn == k], value[order[turn == k]]
        target[at] = combine(target[at].to(wide), v.to(wide)).to(target.dtype)


def compute(node: Node, memory: dict[Buffer, Tensor], axes: Sequence[Axis] = ()) -> Tensor:
    """Returns the value of `node` over `axes` (by default: over the axes it depends on, sorted by name)."""
    done: dict[Node, Value] = {}
    for n in topological([node]):
        done[n] = evaluate(n, [done[s] for s in n.srcs], memory)
    return _spread(done[node], tuple(axes) or done[node].axes)


def evaluate(n: Node, srcs: Sequence[Value], memory: dict[Buffer, Tensor]) -> Value:
    op = n.op
    dtype = n.dtype.to_torch()
    if op is Op.CONST:
        whole = isinstance(n.arg, int) and not (dtype.is_floating_point or dtype.is_complex)
        number = torch.tensor(n.arg, dtype=torch.int64 if whole else dtype)
        return Value((), number.to(dtype))  # ints wrap around
    if op is Op.AXIS:
        return Value((n.arg,), torch.arange(n.arg.extent))
    if op is Op.REDUCE:
        return _reduce(n, srcs[0])
    axes = tuple(sorted({a for s in srcs for a in s.axes}, key=lambda a: a.name))
    given = [_align(s, axes) for s in srcs]
    if op is Op.LOAD:
        return Value(axes, _load(n, given, axes, memory))
    if op is Op.CAST:
        result = given[0].to(dtype)
    elif op is Op.BITCAST:
        result = given[0].view(dtype)
    elif op is Op.RANDOM:
        seed, start, position = given
        bits = philox.words(seed, start, position, n.arg)
        result = philox.uniform(bits) if n.dtype is DType.F32 else bits.to(torch.int32)
    elif op is Op.WHERE:
        result = torch.where(given[0], given[1], given[2])
    else:
        assert not any(s.dtype.is_half for s in n.srcs), f"{n!r}: arithmetic on a 16-bit float"
        result = function(op)(*given)
    assert result.dtype == dtype, f"{n!r} gives {result.dtype}"
    return Value(axes, result)


def _align(value: Value, axes: Sequence[Axis]) -> Tensor:
    """Returns the tensor with dimensions in the order of `axes`, of size 1 for an axis that the value does
    not depend on."""
    own = {a: k for k, a in enumerate(value.axes)}
    t = value.tensor.permute([own[a] for a in axes if a in own])
    for k, a in enumerate(axes):
        if a not in own:
            t = t.unsqueeze(k)
    return t


def _spread(value: Value, axes: Sequence[Axis]) -> Tensor:
    assert set(value.axes) <= set(axes), f"{value.axes} are not all among {axes}"
    return _align(value, axes).expand([a.extent for a in axes])


def _load(
    n: Node, given: Sequence[Tensor], axes: Sequence[Axis], memory: dict[Buffer, Tensor]
) -> Tensor:
    shape = [a.extent for a in axes]
    offset = given[0].expand(shape)
    flat = _flat(n.arg, memory).to(offset.device)  # a number may be on another device
    if len(given) == 1:
        _check_range(offset, flat, repr(n))
        return flat[offset]
    mask = given[1].expand(shape)
    result = torch.zeros(shape, dtype=n.dtype.to_torch())
    _check_range(offset[mask], flat, repr(n))
    result[mask] = flat[offset[mask]]
    return result


def _check_range(offset: Tensor, flat: Tensor, where: str) -> None:
    if offset.numel():
        low, high = int(offset.min()), int(offset.max())
        assert low >= 0 and high < flat.numel(), (
            f"{where}: offsets {low}..{high} of {flat.numel()} elements"
        )


def _reduce(n: Node, value: Value) -> Value:
    bound: tuple[Axis, ...] = n.arg.axes
    free_axes = tuple(a for a in value.axes if a not in bound)
    t = _spread(value, free_axes + bound)
    t = t.reshape([a.extent for a in free_axes] + [math.prod(a.extent for a in bound)])
    dtype = n.dtype.to_torch()
    kind = n.arg.kind
    if t.shape[-1] == 0:
        return Value(free_axes, torch.full(t.shape[:-1], identity(kind, n.dtype), dtype=dtype))
    op = n.arg.op(n.srcs[0].dtype)
    if n.arg.row.position:
        places = torch.argmax if n.arg.row.op is Op.MAX else torch.argmin
        return Value(free_axes, places(t, -1))
    if op in WHOLE:
        return Value(free_axes, WHOLE[op](t, -1).to(dtype))
    return Value(free_axes, functools.reduce(function(op), t.unbind(-1)))


# --- library calls


def run_extern(step: Extern, memory: dict[Buffer, Tensor], sizes: KnownSizes | None = None) -> None:
    """Calls the ATen overload; copies results into OUTPUT and TEMP buffers."""
    sizes = sizes or KnownSizes()

    def given(value: Any) -> Any:
        if isinstance(value, View):
            return view(value, memory)
        return memory[value].item() if isinstance(value, Buffer) else value  # a number

    args, kwargs = map_leaves(given, (step.args, step.kwargs))
    result = overload(step.target)(*args, **dict(kwargs))
    several = result if isinstance(result, tuple) else (result,) if step.results else ()
    # A result that was not requested is None.
    tensors = [t for r in several for t in ([None] if r is None else flatten(r))]
    assert len(tensors) == len(step.results), f"{step.target} returns {len(tensors)} tensors"
    for general, tensor in zip(step.results, tensors, strict=True):
        if general is None:
            continue
        assert tensor is not None, f"{step.target} does not return {general}"
        sizes.seen(general, tensor)
        buffer = sizes.buffer(general)
        assert tuple(tensor.shape) == buffer.shape, f"{step.target}: {buffer} has another shape"
        if buffer.kind is Kind.EXTERN:
            pairs = zip(buffer.shape, tensor.stride(), buffer.strides, strict=True)
            if 0 not in buffer.shape and any(n != 1 and a != b for n, a, b in pairs):
                # The native plan copies such a result, too.
                empty = torch.empty_strided(
                    buffer.shape, buffer.strides, dtype=tensor.dtype, device=tensor.device
                )
                tensor = empty.copy_(tensor)
            memory[buffer] = tensor
        else:
            _of(buffer, memory).copy_(tensor)


def flatten(result: Any) -> list[Tensor]:
    """Returns the tensors among the results of a library call, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [t for r in result for t in flatten(r)]
    return []
