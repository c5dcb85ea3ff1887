"""A lowered graph: buffers, and steps in the order in which they run.

A pass of `ir/` maps a Program to a Program.

    Program.steps = (Kernel | KernelList | Extern | Check, ...)
    Kernel        = stores that share one kernel launch; loops are chosen by the code generator
    KernelList    = many isomorphic kernels in one launch; made after fusion (codegen/schedule/horizontal.py)
    Extern        = one library call (an ATen op) on strided views of buffers
    Check         = raises the exception that eager raises for an index out of range

Before fusion each Kernel has one store.  Fusion merges and substitutes stores; the types stay the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node
from frameloom.ir.symbolic.expr import Symbol

# Messages of the checks that make the call bail out, so that the original function runs instead.
ASSUMED = "a condition does not hold"
SPECULATED = "a choice is another one than in the captured call"
BAIL_OUT_MESSAGES = (ASSUMED, SPECULATED)


class Kind(enum.Enum):
    INPUT = "input"  # a tensor that the caller passes; only a Store that writes a mutation back writes to it
    OUTPUT = "output"  # allocated afresh in every call, may be returned
    TEMP = "temp"  # lives within the call; placed in the arena
    EXTERN = "extern"  # allocated by the library call that returns it
    # One I64 or F64: passed by the caller, computed by a NumberStep or drawn at random.  Kernels get its 64
    # bits, not an address.
    NUMBER = "number"
    CONSTANT = "constant"  # a tensor that the program holds (Program.constants); never written

    __hash__ = object.__hash__  # Enum's own is written in Python


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory.  Offsets in LOAD and Store count elements from its first element (its
    `data_ptr()`).

    Equality is by name: names are unique within a program.  `torch_dtype` is set if `dtype` is None (complex,
    ...): only Extern steps use such buffers.
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
        """Every field: distinguishes buffers of different programs."""
        return (
            self.name, self.dtype, self.shape, self.strides, self.kind, self.torch_dtype, self.device,
        )  # fmt: skip


def is_cuda(device: str) -> bool:
    """Whether the device is a GPU ("cuda:0" and the like) and not "cpu"."""
    return device.startswith("cuda")


@dataclass(frozen=True, slots=True)
class View:
    """A strided tensor over a buffer, for library calls and outputs.  Strides and offset are in elements.

    The dtype is the buffer's, unless `torch_dtype` is set (a view of other dtype: offset and strides then
    count elements of that dtype).  `bits`: for an output, the lazy operations ("conj", "neg") that a reader
    of the memory still has to apply.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    torch_dtype: Any = None
    bits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scatter:
    """Marks a store whose places depend on data.  `kind`: how the element changes: "set" replaces it by the
    value, a key of SCATTER_KINDS combines the two (16-bit floats in F32, rounded every time).  `along`: the
    axes whose different positions may hit the same element; such positions take effect in their order."""

    kind: str
    along: tuple[Axis, ...]


SCATTER_KINDS = ("sum", "prod", "max", "min")  # rows of ir/reductions.py


@dataclass(frozen=True, slots=True)
class Store:
    """For every position of `axes` (outermost first): buffer[offset] = value.  Different positions hit
    different elements, except in a Scatter.  A Scatter stores nothing where the offset is negative, and
    leaves the elements that it does not hit as they are."""

    buffer: Buffer
    offset: Node
    value: Node
    axes: tuple[Axis, ...]
    scatter: Scatter | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """Stores that one generated function computes, all buffers on one device.

    A store never reads what another store of the kernel writes; it uses the other's value node instead.  The
    one exception is the very element that it overwrites itself (in-place update).  In an elementwise kernel
    (elementwise.py) several stores may read an element that one of them reads and overwrites: they read the
    value from before the kernel.  A Scatter reads nothing of its buffer and comes first in its kernel; the
    only other stores allowed there are checks of its positions.

    `origin` names the graph nodes and the user's source lines, for names, comments and reports.
    """

    name: str
    stores: tuple[Store, ...]
    origin: tuple[str, ...] = field(default=(), compare=False)

    @property
    def device(self) -> str:
        return self.stores[0].buffer.device


@dataclass(frozen=True, slots=True)
class KernelInstance:
    """The work of one kernel of a list: `extent` elements; for each column a buffer and the offset of its
    first element; and the numbers that differ between the kernels."""

    extent: int
    columns: tuple[tuple[Buffer, int], ...]
    numbers: tuple[bool | int | float, ...]


@dataclass(frozen=True, slots=True)
class KernelList:
    """Independent kernels that do the same elementwise work on different buffers and extents.

    `stores` are a template of the work, over one axis and with a placeholder buffer per column and number.  A
    column is loaded at the axis, or at 0 if it is the same element everywhere; a number has no dimensions.
    `instances` has one entry per kernel; passes/templates.py instantiates the kernels.
    """

    name: str
    stores: tuple[Store, ...]
    columns: tuple[Buffer, ...]
    numbers: tuple[Buffer, ...]
    instances: tuple[KernelInstance, ...] = field(compare=False)
    origin: tuple[str, ...] = field(default=(), compare=False)

    @property
    def device(self) -> str:
        return self.instances[0].columns[0][0].device


@dataclass(frozen=True, slots=True)
class Extern:
    """A library call.  `target` is an ATen overload, e.g. "aten.addmm.default".  In `args`/`kwargs` a tensor
    is a View; lists and tuples may hold Views; everything else is a plain constant of the type that the
    schema has.

    `results` has one entry per result, in order: the Buffer that receives it, or None if it is unused or no
    tensor.  A buffer of Kind EXTERN takes the tensor that the call returns; OUTPUT and TEMP buffers are
    passed as `out=` (only for targets in codegen/extern.py's table of out= forms).
    """

    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[Buffer | None, ...]
    origin: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Check:
    """Raises if the one BOOL in `buffer` is true: checks data-dependent indices as eager does.  The loads
    that use such an index are masked, so nothing is read out of range before the check.  `exception` is the
    name of a builtin."""

    buffer: Buffer
    exception: str
    message: str

    @property
    def bails_out(self) -> bool:
        """Whether the call bails out if this check fails."""
        return self.message in BAIL_OUT_MESSAGES


@dataclass(frozen=True, slots=True)
class NumberStep:
    """A Python number computed before all other steps; numbers.py has the ops and their meaning."""

    op: str
    result: Buffer
    operands: tuple[Buffer | int | float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class IsomorphicParts:
    """Isomorphic parts of a program: they do the same work on different buffers.  The steps contain only the
    first part; passes/batch.py instantiates it for the others.  `shared`: buffers that several parts read.
    `extent`: the number of elements of the first part's tensors, if other parts may have another number; all
    of the part is elementwise then."""

    first: tuple[Buffer, ...]
    others: tuple[
        tuple[Buffer, ...], ...
    ]  # for each other part, its buffers in the place of `first`
    shared: frozenset[Buffer]
    extent: int | None


Step = Kernel | KernelList | Extern | Check


@dataclass(frozen=True, slots=True)
class Program:
    """`inputs` are in the order of the graph's placeholders.  A placeholder that is a number has a buffer of
    Kind NUMBER; any other placeholder that is no tensor has a buffer without dtypes.  An output is a View (of
    an INPUT buffer: the caller gets a view of that very tensor), an int i (the i-th input object itself), or
    a plain constant in a 1-tuple."""

    inputs: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[View | int | tuple[Any], ...]
    constants: tuple[tuple[Buffer, Any], ...] = ()  # buffers of Kind CONSTANT and their tensors
    numbers: tuple[NumberStep, ...] = ()  # in the order in which they are computed
    # Between lowering and fusion (passes/batch.py).
    isomorphic_parts: tuple[IsomorphicParts, ...] = ()
    symbols: tuple[tuple[Symbol, Buffer], ...] = ()  # each size with the number that has its value
