"""A lowered graph: buffers, and steps in the order they run.  Every pass of `ir/` takes a Program and returns one.

    Program.steps = (Kernel | KernelList | Extern | Check, ...)
    Kernel        = stores that share one kernel launch; loops are chosen by the code generator
    KernelList    = many kernels of one form, launched as one; made after fusion (codegen/schedule/horizontal.py)
    Extern        = one library call (an ATen op) on strided views of buffers
    Check         = raises what eager raises for an index out of range

Before fusion each Kernel has one store; fusion merges and substitutes, the types stay the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import Op
from frameloom.ir.symbolic.expr import Symbol

# What checks say for which the call starts anew as plain Python.
ASSUMED = "a condition does not hold"
FORESEEN = "a choice is another one than in the captured call"
ANEW = (ASSUMED, FORESEEN)


class Kind(enum.Enum):
    INPUT = (
        "input"  # a tensor the caller passes; written only by a Store that writes a mutation back
    )
    OUTPUT = "output"  # allocated afresh in every call, may be returned
    TEMP = "temp"  # lives within the call; placed in the arena
    EXTERN = "extern"  # allocated by the library call that returns it
    # One I64 or F64 that the caller passes, a NumberStep computes or a draw makes; kernels are given its 64 bits, not an address.
    NUMBER = "number"
    CONSTANT = "constant"  # a tensor that the program holds (Program.constants); never written

    __hash__ = object.__hash__  # Enum's own is written in Python


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory.  Offsets in LOAD and Store count elements from its first element (its `data_ptr()`).

    Equality is by name: names are unique within a program.  `torch_dtype` is set where `dtype` is None (complex, ...):
    such buffers are only touched by Extern steps.
    """

    name: str
    dtype: DType | None = field(compare=False)
    shape: tuple[int, ...] = field(compare=False)
    strides: tuple[int, ...] = field(compare=False)  # in elements
    kind: Kind = field(compare=False)
    torch_dtype: Any = field(default=None, compare=False)
    device: str = field(default="cpu", compare=False)

    def __repr__(self) -> str:
        return self.name

    @property
    def identity(self) -> tuple[Any, ...]:
        """Every field: tells buffers of different programs apart."""
        return (
            self.name, self.dtype, self.shape, self.strides, self.kind, self.torch_dtype, self.device,
        )  # fmt: skip


def is_cuda(device: str) -> bool:
    """Whether "cuda:0" and the like, as opposed to "cpu"."""
    return device.startswith("cuda")


@dataclass(frozen=True, slots=True)
class View:
    """A strided tensor over a buffer: what library calls and outputs see.  Strides and offset in elements.

    The dtype is the buffer's, unless `torch_dtype` says otherwise (a view of other dtype: offset and strides count
    elements of that dtype).  `bits`: of an output, what is still to be done to the memory when it is read ("conj", "neg").
    """

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    torch_dtype: Any = None
    bits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scatter:
    """What makes a store one to places that data decides.  `kind`: what becomes of the element there, "set" for the value
    itself, else one of SCATTER_KINDS of both (16-bit floats in F32, rounded every time).  `along`: the axes
    of which different positions may hit the same element; such positions take effect in their order."""

    kind: str
    along: tuple[Axis, ...]


SCATTER_KINDS = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}


@dataclass(frozen=True, slots=True)
class Store:
    """For every position of `axes` (outermost first): buffer[offset] = value.  Different positions hit different
    elements, but for a Scatter, which stores nothing where the offset is negative and keeps what it does not hit."""

    buffer: Buffer
    offset: Node
    value: Node
    axes: tuple[Axis, ...]
    scatter: Scatter | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """Stores computed by one generated function, all buffers on one device.  A store never reads what another store of the kernel writes, except the
    very element it overwrites itself (in-place update): it uses the other's value node instead.  In an elementwise kernel
    (elementwise.py) several stores may read an element that one of them reads and overwrites: what was there before.
    A Scatter reads nothing of its buffer and comes first in its kernel; there may only be checks of its positions beside.

    `origin` names the graph nodes and the user's source lines, for names, comments and reports.
    """

    name: str
    stores: tuple[Store, ...]
    origin: tuple[str, ...] = field(default=(), compare=False)

    @property
    def device(self) -> str:
        return self.stores[0].buffer.device


@dataclass(frozen=True, slots=True)
class Row:
    """What one kernel of a list works on: `extent` elements, per column a buffer and the element of it that is the first,
    and the numbers that differ between the kernels."""

    extent: int
    columns: tuple[tuple[Buffer, int], ...]
    numbers: tuple[bool | int | float, ...]


@dataclass(frozen=True, slots=True)
class KernelList:
    """Kernels that do the same elementwise work on other buffers and extents, none of which needs another.

    `stores` say once what every one of them does, over one axis and with a buffer per column and number: a column is
    loaded at the axis, or at 0 for the same element everywhere; a number has no dimensions.  `rows` has a Row per kernel;
    passes/templates.py makes the kernels of it.
    """

    name: str
    stores: tuple[Store, ...]
    columns: tuple[Buffer, ...]
    numbers: tuple[Buffer, ...]
    rows: tuple[Row, ...] = field(compare=False)
    origin: tuple[str, ...] = field(default=(), compare=False)

    @property
    def device(self) -> str:
        return self.rows[0].columns[0][0].device


@dataclass(frozen=True, slots=True)
class Extern:
    """A library call.  `target` is an ATen overload, e.g. "aten.addmm.default".  In `args`/`kwargs` a tensor is a View;
    lists and tuples may hold Views; everything else is a plain constant as the schema has it.

    `results` has one entry per result, in order: the Buffer that receives it, or None if it is unused or no tensor.  A buffer of Kind
    EXTERN takes the tensor that the call returns; OUTPUT and TEMP buffers are passed as `out=` (only for targets in
    codegen/extern.py's table of out= forms).
    """

    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[Buffer | None, ...]
    origin: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Check:
    """Raises if the one BOOL in `buffer` is true: data-dependent indices are checked as eager checks them.  The loads that
    use such an index are masked, so nothing is read out of range before the check.  `exception` is a builtin's name."""

    buffer: Buffer
    exception: str
    message: str

    @property
    def bails_out(self) -> bool:
        """Whether the call starts anew as plain Python where it fails."""
        return self.message in ANEW


@dataclass(frozen=True, slots=True)
class NumberStep:
    """A Python number computed before all other steps; numbers.py has the ops and their meaning."""

    op: str
    result: Buffer
    operands: tuple[Buffer | int | float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Alike:
    """Parts of a program that do the same with other buffers.  The steps have the first part alone; passes/batch.py says it again
    for the others.  `shared`: what several parts read.  `extent`: how many elements the first part's tensors have, if that
    may be another number for others; all of it is elementwise then."""

    first: tuple[Buffer, ...]
    others: tuple[
        tuple[Buffer, ...], ...
    ]  # for each other part, what it has in the place of `first`
    shared: frozenset[Buffer]
    extent: int | None


Step = Kernel | KernelList | Extern | Check


@dataclass(frozen=True, slots=True)
class Program:
    """`inputs` in the order of the graph's placeholders (a placeholder that is a number has one of Kind NUMBER, any other that is no tensor one without dtypes).  An output is a View (of an INPUT buffer: the caller gets a view of
    that very tensor), an int i (the i-th input object itself), or a plain constant wrapped in a 1-tuple."""

    inputs: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[View | int | tuple[Any], ...]
    constants: tuple[tuple[Buffer, Any], ...] = ()  # buffers of Kind CONSTANT and their tensors
    numbers: tuple[NumberStep, ...] = ()  # in the order in which they are computed
    alike: tuple[Alike, ...] = ()  # from lowering to fusion (passes/batch.py)
    symbols: tuple[tuple[Symbol, Buffer], ...] = ()  # sizes that are numbers
