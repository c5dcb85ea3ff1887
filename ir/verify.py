"""`verify(program)` checks the rules of node.py and program.py.  An error shows the faulty place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from frameloom.errors import VerifyError
from frameloom.ir.dtype import DType
from frameloom.ir.elementwise import elementwise
from frameloom.ir.index import Range, affine, bounds
from frameloom.ir.library import DRAW, OUT_FORMS
from frameloom.ir.node import Axis, Node, index
from frameloom.ir.ops import BINARY, COMPARES, FLOAT_ONLY, PREDICATES, UNARY, Op
from frameloom.ir.passes.batch import expand
from frameloom.ir.passes.memory import size_in_bytes
from frameloom.ir.passes.sink_checks import bad_positions
from frameloom.ir.program import (
    SCATTER_KINDS,
    Buffer,
    Check,
    Extern,
    Kernel,
    Kind,
    Program,
    Store,
    View,
)
from frameloom.ir.reductions import REDUCTIONS
from frameloom.ir.scatter import is_scatter, reads_own
from frameloom.ir.substitute import loads, substitute, topological
from frameloom.ir.symbolic.compare import surely_positive
from frameloom.ir.symbolic.expr import Int, Size, hint_of, hint_product
from frameloom.ir.symbolic.static_steps import CapturedSizes
from frameloom.ir.text import show

MAX_POSITIONS = 1 << 14  # with at most so many positions, each one is checked


class _Fault(Exception):
    def __init__(self, why: str, node: Node | None = None) -> None:
        super().__init__(why)
        self.node = node


def verify(program: Program, blame: str = "") -> None:
    """Raises VerifyError if `program` breaks a rule; `blame` names the stage that made the program."""
    program = expand(program)
    written: set[Buffer] = {b for b, _ in program.constants} | set(program.inputs)
    written |= {n.result for n in program.numbers}
    known: dict[str, Buffer] = {}
    names: set[str] = set()
    stored_offsets: dict[
        Buffer, set[Node]
    ] = {}  # offsets that kernels stored to a buffer since its last read
    elements: dict[Buffer, int] = {}  # how many elements of each buffer kernels have stored
    for k, step in enumerate(program.steps):
        try:
            read, written_here, kernels = step.reads, step.writes, step.kernels
            stored = _offsets(kernels)
            read_too = set(read) if kernels else set()
            for buffer in [*read, *written_here]:
                if known.setdefault(buffer.name, buffer).identity != buffer.identity:
                    raise _Fault(f"two buffers have the name {buffer}")
            for buffer in read:
                if buffer not in written and 0 not in buffer.shape:
                    raise _Fault(f"{buffer} is read before it is written")
                stored_offsets.pop(buffer, None)
            for buffer in written_here:
                is_rewritten = buffer in written and buffer.kind is not Kind.INPUT
                if is_rewritten and buffer not in read_too:
                    # Allowed: another part of a buffer that kernels store in parts (a concatenation), or new
                    # values for a part of a buffer that is completely stored already.
                    before, now = stored_offsets.get(buffer), stored.get(buffer, set())
                    is_other = bool(before and now and now.isdisjoint(before))
                    is_whole = elements.get(buffer, 0) >= _count(buffer)
                    if not is_other and not (
                        is_whole and 0 < _stored(kernels, buffer) < _count(buffer)
                    ):
                        raise _Fault(f"{buffer} is written twice")
                stored_offsets.setdefault(buffer, set()).update(stored.get(buffer, ()))
                count = _stored(kernels, buffer) if kernels else _count(buffer)
                elements[buffer] = elements.get(buffer, 0) + count
            _check_independent(kernels)
            for kernel in kernels:
                if kernel.name in names:
                    raise _Fault(f"two kernels have the name {kernel.name!r}")
                names.add(kernel.name)
                verify_kernel(kernel)
            if isinstance(step, Extern):
                _check_extern(step)
            elif isinstance(step, Check) and step.buffer.dtype is not DType.BOOL:
                raise _Fault(f"a check of {step.buffer}, which is not bool")
            written.update(written_here)
        except _Fault as fault:
            raise VerifyError(_message(program, k, fault, blame)) from None
    for out in program.outputs:
        if isinstance(out, View) and (
            out.buffer.kind is Kind.TEMP or _missing(out.buffer, written)
        ):
            raise VerifyError(
                f"{blame}: output {out} is temporary or never written\n{show(program)}"
            )


def _offsets(kernels: Sequence[Kernel]) -> dict[Buffer, set[Node]]:
    """Returns the offsets at which kernels store to each buffer."""
    offsets: dict[Buffer, set[Node]] = {}
    for k in kernels:
        for s in k.stores:
            offsets.setdefault(s.buffer, set()).add(s.offset)
    return offsets


def _stored(kernels: Sequence[Kernel], buffer: Buffer) -> int:
    stores = [s for k in kernels for s in k.stores if s.buffer == buffer]
    return sum(hint_product(a.extent for a in s.axes) for s in stores)


def _count(buffer: Buffer) -> int:
    return hint_product(buffer.shape)


def _missing(buffer: Buffer, written: set[Buffer]) -> bool:
    return buffer not in written and 0 not in buffer.shape


def _message(program: Program, k: int, fault: _Fault, blame: str) -> str:
    step = program.steps[k]
    around = [
        f"{'>' if i == k else ' '} {i}: {getattr(s, 'name', s)}"
        for i, s in enumerate(program.steps)
        if abs(i - k) <= 2
    ]
    lines = [f"{blame + ': ' if blame else ''}{fault}", *around]
    if fault.node is not None:
        lines += ["in the value", show(fault.node)]
    for kernel in step.kernels[:1]:
        lines += ["of", show(kernel)]
    return "\n".join(lines)


# --- kernels


def _check_independent(kernels: Sequence[Kernel]) -> None:
    writer: dict[Buffer, Kernel] = {b: k for k in kernels for b in k.writes}
    for k in kernels:
        for b in k.buffers:
            if writer.get(b, k) is not k:
                raise _Fault(f"{k.name} and {writer[b].name} both touch {b}")


def verify_kernel(kernel: Kernel) -> None:
    if not kernel.stores:
        raise _Fault("a kernel without stores")
    extents: dict[str, int] = {}
    for n in topological([r for s in kernel.stores for r in (s.offset, s.value)]):
        _check_node(n)
        axes: Sequence[Axis] = (
            n.arg.axes if n.op is Op.REDUCE else (n.arg,) if n.op is Op.AXIS else ()
        )
        for a in axes:
            if extents.setdefault(a.name, a.extent) != a.extent:
                raise _Fault(f"axis {a.name} has two extents", n)
    for s in kernel.stores:
        _check_store(s)
    _check_hazards(kernel)


def _check_store(s: Store) -> None:
    if s.buffer.kind in (Kind.EXTERN, Kind.CONSTANT, Kind.NUMBER):
        raise _Fault(f"a store to {s.buffer}, which is {s.buffer.kind.value}")
    if s.scatter is not None and (
        s.scatter.kind not in ("set", *SCATTER_KINDS) or not set(s.scatter.along) <= set(s.axes)
    ):
        raise _Fault(f"a malformed scatter to {s.buffer}")
    if s.value.dtype is not s.buffer.dtype:
        raise _Fault(f"{s.buffer} of {s.buffer.dtype!r} gets a {s.value.dtype!r}", s.value)
    if any(map(_is_empty, s.axes)) or len(set(s.axes)) < len(s.axes):
        raise _Fault(f"store to {s.buffer} has an empty or repeated axis")
    for root in (s.offset, s.value):
        if not root.free <= set(s.axes):
            raise _Fault(
                f"store to {s.buffer} lacks axes {sorted(map(str, root.free - set(s.axes)))}", root
            )
        if clash := root.bound & set(s.axes):
            raise _Fault(
                f"axes {sorted(map(str, clash))} of the store to {s.buffer} are bound inside", root
            )
    if s.scatter is None:
        _check_offset(s.buffer, s.offset)


def _check_offset(buffer: Buffer, offset: Node) -> None:
    if buffer.kind in (Kind.INPUT, Kind.CONSTANT, Kind.EXTERN) or buffer.dtype is None:
        return  # the memory around it may be part of the same tensor
    size = size_in_bytes(buffer) // buffer.dtype.bytes
    span = bounds(offset)
    if span is None or not _is_outside(span, size):
        return
    if any(_is_outside(bounds(n), hint_of(size)) for n in _at_positions(offset)):
        raise _Fault(f"offsets {span[0]}..{span[1]} of {buffer}, which has {size} elements", offset)


def _is_outside(span: Range | None, size: Int) -> bool:
    return span is not None and (surely_positive(-span[0]) or surely_positive(span[1] - size + 1))


def _at_positions(offset: Node) -> Iterator[Node]:
    """Yields the offset at every position of its axes; symbolic sizes have the values of the captured call.
    (Bounds of terms that depend on each other are wider than the values of the sum.)  Yields `offset` itself
    if there are too many positions."""
    captured = CapturedSizes().node(offset)
    axes = sorted(captured.free, key=lambda a: a.name)
    extents = [a.extent for a in axes]
    if math.prod(extents) > MAX_POSITIONS:
        yield offset
        return
    offset = captured
    for place in itertools.product(*map(range, extents)):
        yield substitute(offset, dict(zip(axes, map(index, place), strict=True)))


def _check_hazards(kernel: Kernel) -> None:
    """Checks that no store reads what the kernel writes.  Exceptions: the very element that the store
    overwrites, and in elementwise kernels an element that another store updates.  Several stores may write to
    parts of a buffer."""
    if is_scatter(kernel):
        scatter, *flags = kernel.stores
        if reads_own(scatter) or any(bad_positions(f, scatter) is None for f in flags):
            raise _Fault(f"{kernel.name} does more than to scatter")
    stored: dict[Buffer, list[Store]] = {}
    for s in kernel.stores:
        stored.setdefault(s.buffer, []).append(s)
    for s in kernel.stores:
        for n in topological([s.value, s.offset]):
            if n.op is not Op.LOAD or n.arg not in stored:
                continue
            updates = n.arg.kind is Kind.INPUT and elementwise(kernel.stores)
            if any(
                not (w is not s and _never_overlap(n.srcs[0], w.offset))
                and (
                    n.srcs[0] is not w.offset
                    or (w is not s and not (updates and n in loads([w.value])))
                )
                for w in stored[n.arg]
            ):
                raise _Fault(f"{kernel.name} reads {n.arg}, which it also writes", n)


def _never_overlap(one: Node, other: Node) -> bool:
    """Whether the two offsets differ for all positions of their loops.  Symbolic sizes have the values of the
    captured call: symbolic strides do not show that rows do not overlap."""
    first, second = affine(one), affine(other)
    if first is None or second is None:
        return False
    need = hint_of(second[1] - first[1])
    steps: dict[int, int] = {}
    for sign, factors in ((1, first[0]), (-1, second[0])):
        for a, factor in factors.items():
            step, most = sign * hint_of(factor), hint_of(a.extent) - 1
            if step < 0:
                need, step = need - step * most, -step
            if step:
                steps[step] = steps.get(step, 0) + most
    return not _is_sum(need, sorted(steps.items(), reverse=True))


def _is_sum(need: int, steps: Sequence[tuple[int, int]]) -> bool:
    """Whether `need` is a sum of multiples of the steps.  A step is (size, greatest factor); the largest
    comes first."""
    if not steps:
        return need == 0
    (step, most), *rest = steps
    low = max(0, -((sum(s * n for s, n in rest) - need) // step))
    return any(_is_sum(need - step * m, rest) for m in range(low, min(most, need // step) + 1))


# --- nodes


def _check_node(n: Node) -> None:
    op, dtypes = n.op, [s.dtype for s in n.srcs]
    if op is Op.CONST:
        wanted = bool if n.dtype.kind == "b" else int if n.dtype.is_int else float
        fits = type(n.arg) is wanted or (n.dtype is DType.I64 and isinstance(n.arg, Size))
        _require(fits and not n.srcs, "a constant of another Python type", n)
    elif op is Op.AXIS:
        _require(n.dtype is DType.I64 and not n.srcs, "an axis is an i64", n)
    elif op is Op.LOAD:
        _require(isinstance(n.arg, Buffer) and n.arg.dtype is n.dtype, "a load of another dtype", n)
        _require(dtypes in ([DType.I64], [DType.I64, DType.BOOL]), "a load takes (i64, bool)", n)
        if len(n.srcs) == 1:
            _check_offset(n.arg, n.srcs[0])
    elif op is Op.REDUCE:
        _check_reduce(n)
    elif op in (Op.CAST, Op.BITCAST):
        _require(len(dtypes) == 1, "a cast takes one source", n)
        _require(op is Op.CAST or dtypes[0].bits == n.dtype.bits, "a bitcast keeps the width", n)
    elif op is Op.RANDOM:
        _require(dtypes == [DType.I64] * 3, "a random number takes seed, offset and position", n)
        _require(n.dtype in (DType.F32, DType.I32), "random numbers are f32 or i32", n)
    elif op is Op.WHERE:
        _require(dtypes == [DType.BOOL, n.dtype, n.dtype], "where takes (bool, a, a)", n)
    else:
        _check_arithmetic(n, dtypes)


def _is_empty(a: Axis) -> bool:
    """Whether the extent is a number below 1.  Symbolic sizes may be 0, and the conditions of the graph may
    even say that all of them are."""
    return isinstance(a.extent, int) and a.extent < 1


def _check_reduce(n: Node) -> None:
    kind, axes = n.arg.kind, n.arg.axes
    _require(kind in REDUCTIONS and len(n.srcs) == 1 and bool(axes), "a malformed reduction", n)
    _require(
        len(set(axes)) == len(axes) and not any(map(_is_empty, axes)),
        "empty or repeated axes",
        n,
    )
    _require(not n.srcs[0].bound & set(axes), "an axis is bound twice", n)
    wanted = DType.I64 if n.arg.row.position else n.srcs[0].dtype
    _require(n.dtype is wanted and not n.srcs[0].dtype.is_half, "a reduction in the wrong dtype", n)
    _require(not n.arg.row.of_bools or wanted is DType.BOOL, "any and all are of bools", n)


def _check_arithmetic(n: Node, dtypes: Sequence[DType]) -> None:
    op = n.op
    if op in UNARY:
        _require(len(dtypes) == 1, "one source", n)
    else:
        _require(
            op in BINARY and len(dtypes) == 2 and dtypes[0] is dtypes[1],
            "two sources of one dtype",
            n,
        )
    own = dtypes[0]
    _require(not own.is_half, "arithmetic on a 16-bit float", n)
    wanted = DType.BOOL if op in COMPARES or op in PREDICATES else own
    _require(n.dtype is wanted, f"the result should be {wanted!r}", n)
    _require(own.is_float or op not in FLOAT_ONLY, "floats only", n)
    if op in (Op.FLOORDIV, Op.TRUNCDIV):
        _require(own.is_int, "integers only", n)
    if op in (Op.AND, Op.OR, Op.XOR, Op.NOT, Op.SHL, Op.SHR):
        _require(not own.is_float, "bits of a float", n)


def _require(holds: bool, why: str, n: Node) -> None:
    if not holds:
        raise _Fault(f"{n.op.value}: {why}", n)


# --- library calls


def _check_extern(step: Extern) -> None:
    for b in step.results:
        own = Kind.NUMBER if step.target == DRAW else Kind.EXTERN
        if b is not None and b.kind is not own and step.target not in OUT_FORMS:
            raise _Fault(f"{step.target} cannot write to {b}")
