"""Masks of scaled_dot_product_attention, in the form that its fast kernels need.

PyTorch chooses one of its kernels by the arguments of the call.  A mask excludes flash attention.  A mask
whose last dimension is broadcast or strided leaves only the slow kernels.  A mask of numbers whose rows are
not multiples of 16 elements is copied in every call.

`prepare` (before fusion) stores such a mask once, in aligned rows, for all calls that share it.
`simplify_masks` (after fusion, when the values of masks are as simple as possible) drops masks that hide
nothing, and replaces the triangular mask by `is_causal`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from frameloom.ir import index
from frameloom.ir.cases import negation
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node, const
from frameloom.ir.ops import Op
from frameloom.ir.passes.dependence import live_steps
from frameloom.ir.program import (
    Buffer,
    Extern,
    Kernel,
    Kind,
    Program,
    Step,
    Store,
    View,
    is_cuda,
)
from frameloom.ir.rows import copy_kernel, of_rows
from frameloom.ir.symbolic.compare import at_most
from frameloom.ir.symbolic.expr import hint_of

ATTENTION = "aten.scaled_dot_product_attention.default"
MASK, CAUSAL = 3, 5  # positions of arguments
ALIGNMENT = 16  # elements; the memory-efficient kernel needs rows of a mask to be multiples of it

HIDDEN_BELOW = -6e4


def calls_with_masks(program: Program) -> Iterator[tuple[int, Extern, View]]:
    """Yields the attention calls on GPUs that have a mask: position, step and mask."""
    for position, step in enumerate(program.steps):
        if isinstance(step, Extern) and step.target == ATTENTION and len(step.args) > MASK:
            mask = step.args[MASK]
            if isinstance(mask, View) and is_cuda(mask.buffer.device):
                yield position, step, mask


# --- before fusion


def prepare(program: Program) -> Program:
    """Returns `program` with masks in the form that the kernels need."""
    steps: dict[int, list[Step]] = {}
    prepared: dict[tuple[View, DType], View] = {}
    for position, step, mask in calls_with_masks(program):
        dtype = step.args[0].buffer.dtype
        before: list[Step] = []
        if dtype is not None and not _is_fit(mask, dtype) and _is_readable(mask, dtype):
            if (mask, dtype) not in prepared:
                prepared[mask, dtype], kernel = _aligned_copy(
                    mask, dtype, len(prepared), step.origin
                )
                before = [kernel]
            step = _with(step, prepared[mask, dtype])
        steps[position] = [*before, step]
    if not prepared:
        return program
    steps_prepared = (s for k, step in enumerate(program.steps) for s in steps.get(k, [step]))
    return replace(program, steps=tuple(steps_prepared))


def _is_fit(mask: View, dtype: DType) -> bool:
    if mask.buffer.dtype is DType.BOOL:
        return mask.strides[-1] == 1
    rows_aligned = all(hint_of(s) % ALIGNMENT == 0 for s in mask.strides[:-1])
    return mask.buffer.dtype is dtype and mask.strides[-1] == 1 and rows_aligned


def _is_readable(mask: View, dtype: DType) -> bool:
    if mask.torch_dtype is not None or mask.buffer.dtype not in (DType.BOOL, dtype):
        return False
    return dtype.is_float and 2 <= len(mask.shape) <= 4 and 0 not in mask.shape


def _aligned_copy(
    mask: View, dtype: DType, number: int, origin: tuple[str, ...]
) -> tuple[View, Kernel]:
    """Returns the prepared mask, with one element per value that differs, and the kernel that writes it."""
    *outer, last = mask.shape
    extents = [1 if stride == 0 else e for e, stride in zip(outer, mask.strides, strict=False)]
    # A BOOL mask stays BOOL: for a query that sees no key, only the library's kernel knows the result that
    # eager gives.
    dtype = DType.BOOL if mask.buffer.dtype is DType.BOOL else dtype
    name, row = f"attention_mask_{number}", -(-last // ALIGNMENT) * ALIGNMENT
    buffer = of_rows(name, dtype, (*extents, last), row, mask.buffer.device)
    source = View(mask.buffer, buffer.shape, mask.strides, mask.offset)
    kernel = copy_kernel(source, buffer, buffer.strides, name, origin)
    seen = (0 if e == 1 else s for e, s in zip(extents, buffer.strides, strict=False))
    return View(buffer, mask.shape, (*seen, 1)), kernel


def _with(step: Extern, mask: View | None, causal: bool = False) -> Extern:
    args = list(step.args)
    args[MASK] = mask
    if causal:
        args[CAUSAL] = True
    return replace(step, args=tuple(args))


# --- after fusion


def simplify_masks(program: Program) -> Program:
    """Returns `program` without masks that hide nothing, and with `is_causal` instead of triangular masks."""
    replacements: dict[int, Extern] = {}
    stores: dict[Buffer, list[Store]] = {}
    for position, step, mask in calls_with_masks(program):
        if not stores:
            for s in (s for kernel in program.kernels for s in kernel.stores):
                stores.setdefault(s.buffer, []).append(s)
        written = stores.get(mask.buffer, ())
        if mask.buffer.kind is not Kind.TEMP or len(written) != 1 or mask.torch_dtype is not None:
            continue
        value = _visibility(written[0].value)
        if value is None:
            continue
        if value.op is Op.CONST:
            if value.arg:
                replacements[position] = _with(step, None)
        elif _is_causal(step, mask, written[0], value):
            replacements[position] = _with(step, None, causal=True)
    if not replacements:
        return program
    steps = tuple(replacements.get(k, step) for k, step in enumerate(program.steps))
    changed = replace(program, steps=steps)
    return replace(changed, steps=tuple(live_steps(changed)))


def _visibility(value: Node) -> Node | None:
    """Returns the condition that a key is seen, as a node of BOOL.  None if the mask adds numbers other than
    0 and a number that has the effect of -inf for a query that sees another key."""
    if value.dtype is DType.BOOL:
        return _fold_condition(value)
    if value.op is Op.CONST and value.arg == 0:
        return const(True, DType.BOOL)
    if value.op is Op.WHERE and all(v.op is Op.CONST for v in value.srcs[1:]):
        seen, hidden = (v.arg for v in value.srcs[1:])
        if seen == 0 and hidden <= HIDDEN_BELOW:
            return _fold_condition(value.srcs[0])
        if hidden == 0 and seen <= HIDDEN_BELOW:
            return _fold_condition(negation(value.srcs[0]))
    return None


def _fold_condition(condition: Node) -> Node:
    """Returns true if the ranges of both sides show it, else the condition."""
    difference = _difference(condition)
    if difference is not None:
        span = index.bounds(difference)
        if span is not None and at_most(0, span[0]):
            return const(True, DType.BOOL)
    return condition


def _difference(condition: Node) -> Node | None:
    """Returns an integer that is at least 0 exactly where the condition holds; None if the condition has
    another form."""
    if len(condition.srcs) != 2 or condition.srcs[0].dtype is not DType.I64:
        return None
    a, b = condition.srcs
    if condition.op is Op.GE:
        return index.sub(a, b)
    if condition.op is Op.LE:
        return index.sub(b, a)
    if condition.op is Op.GT:
        return index.add(index.sub(a, b), index.index(-1))
    if condition.op is Op.LT:
        return index.add(index.sub(b, a), index.index(-1))
    return None


def _is_causal(step: Extern, mask: View, store: Store, condition: Node) -> bool:
    """Whether position i sees the keys 0 to i, and there are as many keys as queries."""
    length = step.args[0].shape[-2]
    if step.args[1].shape[-2] != length or mask.shape[-2:] != (length, length) or length == 1:
        return False
    if step.args[CAUSAL] or mask.offset != 0:
        return False
    difference, affine_offset = _difference(condition), index.affine(store.offset)
    affine_difference = None if difference is None else index.affine(difference)
    if (
        affine_difference is None
        or affine_offset is None
        or affine_offset[1] != 0
        or affine_difference[1] != 0
    ):
        return False
    by_stride = {stride: a for a, stride in affine_offset[0].items()}
    row, column = by_stride.get(mask.strides[-2]), by_stride.get(mask.strides[-1])
    if row is None or column is None or len(by_stride) != len(affine_offset[0]):
        return False
    return affine_difference[0] == {row: 1, column: -1} and row.extent == column.extent == length
