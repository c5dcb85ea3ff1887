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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from frameloom.ir.dtype import DType
from frameloom.ir.fallible import never_raises
from frameloom.ir.library import OWN, effects
from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import Op
from frameloom.ir.substitute import loads, transform
from frameloom.ir.symbolic import unbacked
from frameloom.ir.symbolic.expr import Int, Size, Symbol

if TYPE_CHECKING:
    from frameloom.ir.kernel_list import KernelList

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


def leaves(value: Any) -> Iterator[Any]:
    """Yields what the lists and tuples of an argument hold, in order."""
    stack = [value]
    while stack:
        v = stack.pop()
        if isinstance(v, list | tuple):
            stack.extend(reversed(v))
        else:
            yield v


def map_leaves(of: Callable[[Any], Any], value: Any) -> Any:
    """Returns an argument with other values in its lists and tuples."""
    if isinstance(value, list | tuple):
        return type(value)(map_leaves(of, v) for v in value)
    return of(value)


def sizes_in(value: Any) -> Iterator[Int]:
    """Yields the sizes in an argument or an output, those of its buffers among them."""
    for v in leaves(value):
        if isinstance(v, Size):
            yield v
        elif isinstance(v, View):
            yield from (*v.shape, *v.strides, v.offset, *v.buffer.shape, *v.buffer.strides)


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

    @property
    def copies_itself(self) -> bool:
        """Whether it stores every element where it has loaded it."""
        n = self.value
        return n.op is Op.LOAD and n.arg == self.buffer and n.srcs == (self.offset,)

    def transformed(
        self, visit: Callable[[Node], Node | None], skip: Callable[[Node], bool] | None = None
    ) -> Store:
        """Returns the store with offset and value rebuilt (substitute.transform)."""
        offset, value = transform((self.offset, self.value), visit, skip)
        return replace(self, offset=offset, value=value)


def read_by(stores: Iterable[Store]) -> dict[Buffer, None]:
    """Returns the buffers whose previous contents the stores need."""
    stores = list(stores)
    buffers = dict.fromkeys(n.arg for n in loads([r for s in stores for r in (s.value, s.offset)]))
    buffers.update(dict.fromkeys(s.buffer for s in stores if s.scatter is not None))
    return buffers


class StepBase:
    """What passes ask every step."""

    __slots__ = ()

    @property
    def reads(self) -> list[Buffer]:
        """The buffers that the step reads, or whose size it has to know."""
        raise NotImplementedError

    @property
    def writes(self) -> list[Buffer]:
        """The buffers that receive results."""
        raise NotImplementedError

    @property
    def buffers(self) -> list[Buffer]:
        """Every buffer that the step reads or writes, once."""
        return list(dict.fromkeys([*self.reads, *self.writes]))

    @property
    def changes(self) -> list[Buffer]:
        """The buffers whose contents the step changes."""
        return self.writes

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that the step launches."""
        return ()

    @property
    def defines(self) -> Sequence[tuple[Symbol, Buffer, int]]:
        """The symbols whose value is the size of a dimension of a result."""
        return ()

    @property
    def has_effect(self) -> bool:
        """Whether it does more than return results: then it is neither dropped nor moved past another such
        step."""
        return False

    @property
    def writes_input(self) -> bool:
        return any(b.kind is Kind.INPUT for b in self.changes)

    @property
    def commits(self) -> bool:
        """Whether it changes something that exists outside of the call: an input, or the state of a
        generator."""
        return self.writes_input or self.has_effect

    @property
    def may_fail(self) -> bool:
        """Whether a call can end here, by an exception or because an assumption about data is wrong."""
        return False

    @property
    def bails_out(self) -> bool:
        """Whether the call bails out if this step, a check, fails."""
        return False

    def renamed(self, names: Mapping[Buffer, Buffer], suffix: str = "") -> Self:
        """Returns the step with other buffers; a kernel's name gets the suffix."""
        raise NotImplementedError

    def with_stores(self, of: Callable[[Sequence[Store]], Iterable[Store]]) -> Self:
        """Returns the step with other stores, if it is a kernel."""
        return self

    def keeping(self, wanted: Callable[[Store], bool]) -> Self | None:
        """Returns the step with only these of its stores, if it is a kernel; None if nothing is left."""
        return self


@dataclass(frozen=True, slots=True)
class Kernel(StepBase):
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

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self,)

    @property
    def reads(self) -> list[Buffer]:
        buffers = read_by(self.stores)
        nodes = (n for s in self.stores for n in (s.offset, s.value))
        buffers.update(dict.fromkeys(unbacked.sources(self._sizes(), nodes)))
        return list(buffers)

    def _sizes(self) -> Iterator[Int]:
        for s in self.stores:
            yield from (*s.buffer.shape, *s.buffer.strides, *(a.extent for a in s.axes))

    @property
    def writes(self) -> list[Buffer]:
        return list(dict.fromkeys(s.buffer for s in self.stores))

    def with_stores(self, of: Callable[[Sequence[Store]], Iterable[Store]]) -> Kernel:
        return replace(self, stores=tuple(of(self.stores)))

    def keeping(self, wanted: Callable[[Store], bool]) -> Kernel | None:
        kept = tuple(filter(wanted, self.stores))
        if len(kept) == len(self.stores):
            return self
        return replace(self, stores=kept) if kept else None

    def renamed(self, names: Mapping[Buffer, Buffer], suffix: str = "") -> Kernel:
        def visit(n: Node) -> Node | None:
            if n.op is not Op.LOAD or n.arg not in names:
                return None
            return Node(Op.LOAD, n.dtype, n.srcs, names[n.arg])

        roots = transform([n for s in self.stores for n in (s.offset, s.value)], visit)
        stores = tuple(
            replace(s, buffer=names.get(s.buffer, s.buffer), offset=offset, value=value)
            for s, offset, value in zip(self.stores, roots[::2], roots[1::2], strict=True)
        )
        return replace(self, name=self.name + suffix, stores=stores)


@dataclass(frozen=True, slots=True)
class Extern(StepBase):
    """A library call.  `target` is an ATen overload, e.g. "aten.addmm.default".  In `args`/`kwargs` a tensor
    is a View; lists and tuples may hold Views; everything else is a plain constant of the type that the
    schema has.

    `results` has one entry per result, in order: the Buffer that receives it, or None if it is unused or no
    tensor.  A buffer of Kind EXTERN takes the tensor that the call returns; OUTPUT and TEMP buffers are
    passed as `out=` (only for targets in library.py's table of out= forms).
    """

    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[Buffer | None, ...]
    origin: tuple[str, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> list[Any]:
        """All arguments, without their lists and names."""
        return list(leaves([*self.args, *(v for _, v in self.kwargs)]))

    @property
    def _viewed(self) -> list[Buffer]:
        return list(dict.fromkeys(v.buffer for v in self.arguments if isinstance(v, View)))

    @property
    def reads(self) -> list[Buffer]:
        sizes = [b for b in unbacked.sources(self._sizes()) if b not in self.results]
        return list(dict.fromkeys([*self._viewed, *sizes]))

    def _sizes(self) -> Iterator[Int]:
        for b in self.writes:
            yield from (*b.shape, *b.strides)
        yield from sizes_in(self.arguments)

    @property
    def writes(self) -> list[Buffer]:
        return [b for b in self.results if b is not None]

    @property
    def mutates(self) -> bool:
        """Whether it writes to its arguments."""
        return effects(self.target).mutates

    @property
    def changes(self) -> list[Buffer]:
        return [*self.writes, *(self._viewed if self.mutates else ())]

    @property
    def has_effect(self) -> bool:
        return effects(self.target).beyond_results

    @property
    def defines(self) -> Sequence[tuple[Symbol, Buffer, int]]:
        return unbacked.definitions(self.results)

    @property
    def may_fail(self) -> bool:
        # On a GPU, too: kernels report bad data later, but a library call rejects bad arguments at once.
        return bool(self.defines) or not (self.target in OWN or never_raises(self.target))

    def renamed(self, names: Mapping[Buffer, Buffer], suffix: str = "") -> Extern:
        def of(value: Any) -> Any:
            if isinstance(value, View):
                return replace(value, buffer=names.get(value.buffer, value.buffer))
            return names.get(value, value) if isinstance(value, Buffer) else value

        args, kwargs, results = map_leaves(of, (self.args, self.kwargs, self.results))
        return replace(self, args=args, kwargs=kwargs, results=results)


@dataclass(frozen=True, slots=True)
class Check(StepBase):
    """Raises if the one BOOL in `buffer` is true: checks data-dependent indices as eager does.  The loads
    that use such an index are masked, so nothing is read out of range before the check.  `exception` is the
    name of a builtin."""

    buffer: Buffer
    exception: str
    message: str
    origin: ClassVar[tuple[str, ...]] = ()

    @property
    def bails_out(self) -> bool:
        return self.message in BAIL_OUT_MESSAGES

    @property
    def reads(self) -> list[Buffer]:
        return [self.buffer]

    @property
    def writes(self) -> list[Buffer]:
        return []

    @property
    def may_fail(self) -> bool:
        return not is_cuda(self.buffer.device)  # on a GPU, the kernel itself stops the device

    def renamed(self, names: Mapping[Buffer, Buffer], suffix: str = "") -> Check:
        return replace(self, buffer=names.get(self.buffer, self.buffer))


@dataclass(frozen=True, slots=True)
class NumberStep:
    """A Python number computed before all other steps; numbers.py has the ops and their meaning."""

    op: str
    result: Buffer
    operands: tuple[Buffer | int | float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class IsomorphicParts:
    """Isomorphic parts of a program: they do the same work on different buffers.  The steps contain only the
    first part; passes/batch.py instantiates it for the others.  `first`: the first part's buffers.  `others`:
    for each other part, the buffers in their place, and by how many elements its accesses begin later.
    `shared`: buffers that several parts read.  `extents`: for each part, the number of elements of its
    tensors, if these numbers may differ; all of the part is elementwise then."""

    first: tuple[Buffer, ...]
    others: tuple[tuple[tuple[Buffer, int], ...], ...]
    shared: frozenset[Buffer]
    extents: tuple[int, ...] | None


Step: TypeAlias = "Kernel | KernelList | Extern | Check"


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

    @property
    def kernels(self) -> list[Kernel]:
        """The steps that are one kernel."""
        return [s for s in self.steps if isinstance(s, Kernel)]

    @property
    def kernel_lists(self) -> list[KernelList]:
        return [s for s in self.launches if not isinstance(s, Kernel)]

    @property
    def launches(self) -> list[Kernel | KernelList]:
        """The steps that launch kernels."""
        return [s for s in self.steps if not isinstance(s, Extern | Check)]

    @property
    def library_calls(self) -> list[Extern]:
        return [s for s in self.steps if isinstance(s, Extern)]

    @property
    def checked(self) -> frozenset[Buffer]:
        """The flags that the checks read."""
        return frozenset(s.buffer for s in self.steps if isinstance(s, Check))

    @property
    def returned(self) -> list[Buffer]:
        """The buffers of the outputs."""
        return [o.buffer for o in self.outputs if isinstance(o, View)]
