"""Matrix products on GPUs in aligned memory.

The library's fast kernels for 16-bit numbers need every row of operands and result to start at a multiple of
16 bytes; other kernels are several times slower.  An odd number of columns has the same effect, wherever the
rows start.
`prepare` (before fusion) gives a result or operand without this layout a buffer with longer rows, and a
kernel that copies.  Fusion makes the copy part of the kernel that computes the operand, or of the one that
reads the result.  Where it cannot, the copied bytes have to be few compared with the multiplications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frameloom.ir.library import OUT_FORMS
from frameloom.ir.program import (
    Buffer,
    Extern,
    Kernel,
    Kind,
    Program,
    Step,
    View,
    is_cuda,
)
from frameloom.ir.rows import copy_kernel, of_rows
from frameloom.ir.symbolic.expr import Int, hint_of, hint_product

ROW = 16  # bytes; rows are multiples of it
MIN_MULTIPLICATIONS = 1 << 30  # below, the launch of the copy costs as much as it saves
# The multiplications that a GPU does in the time in which it moves a byte; and the time that alignment saves,
# as a multiple of the aligned product's time.
MULTIPLICATIONS_PER_BYTE = 75
ALIGNMENT_GAIN = 3

ADDING = ("aten.addmm.default", "aten.baddbmm.default")


def prepare(program: Program) -> Program:
    """Returns `program` with large products in aligned memory."""
    steps: list[Step] = []
    for number, step in enumerate(program.steps):
        if (
            isinstance(step, Extern)
            and step.target in OUT_FORMS
            and _multiplications(step) >= MIN_MULTIPLICATIONS
        ):
            steps += _aligned(step, f"aligned_{number}", program)
        else:
            steps.append(step)
    return program if len(steps) == len(program.steps) else replace(program, steps=tuple(steps))


def _multiplications(step: Extern) -> int:
    """Returns the number of multiplications; 0 for a product that stays as it is."""
    (result,) = step.results
    half = result is not None and result.dtype is not None and result.dtype.is_half
    if result is None or not half or not is_cuda(result.device) or result.kind is Kind.EXTERN:
        return 0
    return hint_product((step.args[-1 - _numbers(step)].shape[-2], *result.shape))


def _numbers(step: Extern) -> int:
    """Returns how many arguments follow the factors."""
    return sum(not isinstance(a, View) for a in step.args)


def _aligned(step: Extern, name: str, program: Program) -> list[Step]:
    """Returns the call on aligned memory, and the copies around it."""
    (result,) = step.results
    assert result is not None
    last = len(step.args) - _numbers(step)
    operands = [k for k in (last - 2, last - 1) if not _is_aligned(step.args[k])]
    padded_result = not _is_aligned(View(result, result.shape, result.strides))
    if not operands and not padded_result:
        return [step]
    adding = step.target in ADDING
    # With an odd number of columns the library does not use its fast kernels, wherever the rows start.  So
    # the product gets extra columns that no step reads.  A vector that is added to all rows is then added
    # within the product.
    widened = padded_result and (not adding or len(step.args[0].shape) == 1)
    if widened and last - 1 not in operands:
        operands.append(last - 1)
    copied = sum(
        _bytes(step.args[k].shape) for k in operands if not _is_computed(step.args[k], program)
    )
    if padded_result and (result.kind is Kind.OUTPUT or _has_library_reader(result, program)):
        copied += _bytes(result.shape)
    if padded_result and adding and not widened:
        copied += _bytes(result.shape)  # the addend is copied into the result first
    if 2 * copied * MULTIPLICATIONS_PER_BYTE > ALIGNMENT_GAIN * _multiplications(step):
        return [step]
    steps: list[Step] = []
    args = list(step.args)
    for k in operands:
        columns = _whole(result.shape[-1]) if widened and k == last - 1 else args[k].shape[-1]
        args[k], kernel = _operand(args[k], f"{name}_{k}", step.origin, columns)
        steps.append(kernel)
    if not padded_result:
        return [*steps, replace(step, args=tuple(args))]
    wide = _padded(result.shape, f"{name}_result", result)
    if widened:
        wide = replace(wide, shape=(*result.shape[:-1], _whole(result.shape[-1])))
        if adding:
            args[0], kernel = _operand(args[0], f"{name}_0", step.origin, wide.shape[-1])
            steps.append(kernel)
    steps.append(replace(step, args=tuple(args), results=(wide,)))
    source = View(wide, result.shape, wide.strides)
    steps.append(copy_kernel(source, result, result.strides, f"{name}_result", step.origin))
    return steps


def _whole(extent: Int) -> Int:
    """Rounds a number of 16-bit elements up to whole units of ROW bytes."""
    return -(-extent // (ROW // 2)) * (ROW // 2)


def _bytes(shape: Sequence[int]) -> int:
    return 2 * hint_product(shape)


def _is_aligned(view: View) -> bool:
    """Whether the library can read it as it is: one dimension of the matrix is dense, and the other strides
    are multiples of ROW bytes.  (For symbolic sizes this is true in the captured call; the library accepts
    others, too.)"""
    unit = ROW // 2
    *_, rows, columns = view.strides
    if view.torch_dtype is not None or 1 not in (rows, columns):
        return True  # this pass does not handle such a view
    dense = len(view.strides) - (1 if columns == 1 else 2)
    return hint_of(view.offset) % unit == 0 and all(
        k == dense or hint_of(extent) == 1 or hint_of(stride) % unit == 0
        for k, (extent, stride) in enumerate(zip(view.shape, view.strides, strict=True))
    )


def _is_computed(view: View, program: Program) -> bool:
    """Whether a kernel writes the operand only for this call: then it can write it aligned."""
    if view.buffer.kind is not Kind.TEMP:
        return False
    readers = [s for s in program.steps if view.buffer in s.reads]
    return len(readers) == 1 and any(view.buffer in kernel.writes for kernel in program.kernels)


def _has_library_reader(buffer: Buffer, program: Program) -> bool:
    return any(buffer in call.reads for call in program.library_calls)


def _padded(shape: Sequence[int], name: str, like: Buffer) -> Buffer:
    return of_rows(name, like.dtype, shape, _whole(shape[-1]), like.device)


def _operand(view: View, name: str, origin: tuple[str, ...], columns: int) -> tuple[View, Kernel]:
    """Copies an operand into longer rows and returns a view with `columns` columns; the dense dimension stays
    the dense one."""
    shape, strides, seen = list(view.shape), list(view.strides), [*view.shape[:-1], columns]
    columns_first = len(shape) > 1 and strides[-1] != 1
    for of in (shape, strides, seen) if columns_first else ():
        of[-2:] = of[:-3:-1]
    wide = _padded(seen, name, view.buffer)
    source = View(view.buffer, tuple(shape), tuple(strides), view.offset)
    kernel = copy_kernel(source, wide, wide.strides, name, origin)
    extents, steps = list(wide.shape), list(wide.strides)
    for of in (extents, steps) if columns_first else ():
        of[-2:] = of[:-3:-1]
    return View(wide, tuple(extents), tuple(steps)), kernel
